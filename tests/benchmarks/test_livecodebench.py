"""LiveCodeBench on problems of ours, officially encoded: graded, confined, decoded safely."""

import asyncio
import base64
import json
import pickle
import zlib

import pytest
from livecodebench.lm_styles import LMStyle
from livecodebench.utils import extraction_utils

from spade_jax.benchmarks import livecodebench
from spade_jax.benchmarks.interface import Absent, Item
from spade_jax.benchmarks.livecodebench import LiveCodeBench, program
from spade_jax.benchmarks.livecodebench_tests import tests_of as decoded
from tests.benchmarks.scripted_policy import ScriptedPolicy


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def case(given, expected, kind):
    return {"input": given, "output": expected, "testtype": kind}


STDIN = {
    "question_id": "double",
    "question_content": "Print twice the number.",
    "starter_code": "",
    "public_test_cases": json.dumps([case("2\n", "4\n", "stdin")]),
    "private_test_cases": packed(json.dumps([case("5\n", "10\n", "stdin")])),
    "metadata": "{}",
}
FUNCTIONAL = {
    "question_id": "add",
    "question_content": "Add two numbers.",
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
    "public_test_cases": json.dumps([case("1\n2", "3", "functional")]),
    "private_test_cases": json.dumps([case("5\n-7", "-2", "functional")]),
    "metadata": json.dumps({"func_name": "add"}),
}
ESCAPE = """
import os, socket
able = []
for name, attempt in (("open", lambda: os.open("/etc/hostname", 0)), ("socket", socket.socket)):
    try:
        attempt()
        able.append(name)
    except Exception:
        pass
print(2 * int(input()) if not able else able)
"""
ALWAYS = """
class Same:
    def __eq__(self, other):
        return Yes()

class Yes:
    def __bool__(self):
        return True

class Solution:
    def add(self, a, b):
        return Same()
"""
PROGRAMS = [
    (STDIN, "print(2 * int(input()))", ""),
    (STDIN, "import sys\nfor line in sys.stdin:\n    print(int(line) * 2.0)", ""),  # as decimals
    (STDIN, "if __name__ == '__main__':\n    print(2 * int(input()))", ""),
    (STDIN, ESCAPE, ""),
    (STDIN, "print(4)", "Wrong answer"),
    (STDIN, "print(1 / 0)", "Runtime Error"),
    (STDIN, "while True: pass", "Time Limit Exceeded"),
    (STDIN, "import os\nos._exit(0)", "ended: grade: the worker ended"),
    (STDIN, "print(", "Error during testing"),
    (FUNCTIONAL, "class Solution:\n    def add(self, a, b):\n        return a + b", ""),
    (FUNCTIONAL, "class Solution:\n    def add(self, a, b):\n        return 3", "Wrong Answer"),
    (FUNCTIONAL, "class Solution:\n    def sum(self, a, b):\n        return 3", "Error"),
    (FUNCTIONAL, ALWAYS, "wrong"),
]


def test_programs_are_graded_as_officially_and_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(livecodebench, "TIMEOUT", 2)

    async def go():
        async with LiveCodeBench(tmp_path) as benchmark:
            return await asyncio.gather(
                *(
                    benchmark.attempt(
                        Item(row["question_id"], benchmark.name, row),
                        ScriptedPolicy(
                            lambda _, code=code: [f"So:\n```python\n{code}\n```\nDone."]
                        ),
                    )
                    for row, code, _ in PROGRAMS
                )
            )

    for outcome, (_, code, verdict) in zip(asyncio.run(go()), PROGRAMS, strict=True):
        assert outcome.verdict.startswith(verdict), code
        assert outcome.score == (not verdict), code
        assert bool(outcome.verdict) == bool(verdict), code
        assert not outcome.fault


def test_private_tests_are_read_without_loading_a_pickle():
    plain = [case("é\n" * 300, "2", "stdin")]
    assert decoded(json.dumps(plain)) == decoded(packed(json.dumps(plain))) == plain

    class Evil:
        def __reduce__(self):
            return print, ("loaded",)

    for value in (Evil(), [json.dumps(plain)], ("a", "b"), 3):
        with pytest.raises(ValueError, match="in a pickle of private tests"):
            decoded(packed(value))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle_is_read(protocol):
    text = json.dumps([case("1", "ü\\\n", "stdin")], ensure_ascii=False)
    raw = pickle.dumps(text, protocol=protocol)
    assert decoded(base64.b64encode(zlib.compress(raw)).decode()) == json.loads(text)


@pytest.mark.parametrize(
    "reply",
    ["a\n```python\nx = 1\n```\nb\n```\ny\nz\n```", "```python\nx\n```", "no code", "```\nx", ""],
)
def test_extraction_is_the_official_one(reply):
    assert program(reply) == extraction_utils.extract_code(reply, LMStyle.OpenAIChat)


def test_thinking_is_no_answer():
    assert program("<think>```python\nx\n```</think>I give up.") == ""


def test_data_is_checked_and_its_absence_told(tmp_path):
    with pytest.raises(Absent, match=r"hf download livecodebench/code_gen.* test6\.jsonl"):
        LiveCodeBench(tmp_path).items()
    path = tmp_path / "livecodebench_v6.jsonl"
    path.write_text(json.dumps(STDIN | {"metadata": None}))
    with pytest.raises(Absent, match="a row without metadata"):
        LiveCodeBench(tmp_path).items()
    rows = [STDIN | {"question_id": str(number)} for number in range(175)]
    path.write_text("\n".join(map(json.dumps, rows[1:])))
    with pytest.raises(Absent, match=r"holds 174 problems, not 175 \(test6\.jsonl\) or 1055"):
        LiveCodeBench(tmp_path).items()
    path.write_text("\n".join(map(json.dumps, rows)))
    benchmark = LiveCodeBench(tmp_path)
    assert len(benchmark.items()) == 175
    assert benchmark.protocol()["problems"] == "test6.jsonl"


def test_the_starter_code_is_asked_to_be_completed():
    asked = livecodebench.question(FUNCTIONAL)
    assert FUNCTIONAL["starter_code"] in asked
    assert "standard input" not in asked
    assert "standard input" in livecodebench.question(STDIN)
