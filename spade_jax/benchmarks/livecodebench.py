"""LiveCodeBench-v6: programs judged by the official grading, in a confined process each; pass@1.

The data is ``test6.jsonl``, the 175 problems of the last increment, or all six files: release_v6.
"""

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spade_jax.benchmarks import asked, files
from spade_jax.benchmarks.interface import (
    Absent,
    Figures,
    Item,
    Outcome,
    Policy,
    Unanswered,
)
from spade_jax.benchmarks.livecodebench_tests import tests_of
from spade_jax.environments import parsing
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sandbox.workers import Fault, Workers

PACKAGE, VERSION = "nvidia-livecodebench", "26.3"
COMMAND = f"pip install --no-deps {PACKAGE}=={VERSION}"
SETS = {175: "test6.jsonl", 1055: "release_v6"}
TIMEOUT = 6  # seconds of a test; a program has a second more for each, and START
START = 30.0
COLUMNS = ("question_id", "question_content", "starter_code", "public_test_cases",
           "private_test_cases", "metadata")  # fmt: skip
PROMPT = """\
Solve this problem with a Python program that is correct and passes all tests.

{question}

{form}"""
STDIN = """\
The program reads its input from standard input and writes the answer to standard output; it does \
not test itself. Put all of it into one block:

```python
# the program
```"""
FUNCTION = """\
Complete this code, and put all of the program into one block:

```python
{starter}
```"""


class LiveCodeBench:
    """The benchmark; ends its worker processes when it is left.

    Args:
      data: folder with ``livecodebench_v6``: the file ``test6.jsonl``, or all six.
    """

    name, title = "livecodebench_v6", "LiveCodeBench-v6, pass@1"
    params = SamplingParams(max_tokens=16384, temperature=0.7, top_p=0.8, top_k=20)

    def __init__(self, data: Path):
        self._data = data
        self._workers = Workers("spade_jax.benchmarks.livecodebench_backend", once=True)
        self._digest, self._problems = "", 0

    async def __aenter__(self) -> "LiveCodeBench":
        try:
            await self._workers.run("ready", deadline=4 * START)
        except Fault as fault:
            await self._workers.aclose()
            reason = (
                f"programs cannot be confined here ({fault}): the kernel has no seccomp filters"
            )
            raise Absent(reason, "uname -a, and docs/sandbox.md") from fault
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    def items(self) -> list[Item]:
        _check_package()
        source = "livecodebench/code_generation_lite", "test6.jsonl"
        command = files.command_for(self._data, self.name, *source)
        rows = files.read(self._data, self.name, command)
        place = self._data / self.name
        for row in rows:
            if missing := [name for name in COLUMNS if not isinstance(row.get(name), str)]:
                raise Absent(f"{place}: a row without {', '.join(missing)}", command)
        if len(rows) not in SETS:
            known = " or ".join(f"{count} ({name})" for count, name in SETS.items())
            raise Absent(f"{place} holds {len(rows)} problems, not {known}", command)
        self._problems = len(rows)
        self._digest = asked.digest(*(row[name] for row in rows for name in COLUMNS))
        return [Item(row["question_id"], self.name, row) for row in rows]

    def protocol(self) -> dict[str, Any]:
        return {
            "package": f"{PACKAGE} {VERSION}",
            "data": self._digest,
            "problems": SETS.get(self._problems, str(self._problems)),
            "prompt": asked.digest(PROMPT, STDIN, FUNCTION)[:16],
            "extraction": "between the last two lines with a fence, as official",
            "seconds": TIMEOUT,
        }

    def floors(self) -> Figures:
        return {}

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        record: dict[str, Any] = {}
        verdict = fault = ""
        messages = [{"role": "user", "content": question(item.data)}]
        try:
            async with policy.talk(f"{self.name}/{item.name}", self.params, messages) as talk:
                record["reply"] = await talk.reply()
            record["program"] = program(record["reply"])
            verdict = await self._grade(item, record["program"]) if record["program"] else "no code"
        except Unanswered as reason:
            verdict, fault = "not judged", str(reason)
        except Fault as reason:  # it hung, died or ate its memory: the program's own doing
            verdict = f"ended: {reason}"[:200]
        return Outcome(item.name, item.column, float(not verdict), verdict, fault, record)

    async def _grade(self, item: Item, written: str) -> str:
        row = item.data
        name = json.loads(row["metadata"]).get("func_name")
        tests = row["public_test_cases"], row["private_test_cases"]
        count = sum(len(tests_of(text)) for text in tests)
        deadline = START + (TIMEOUT + 1) * count
        return await self._workers.run("grade", written, *tests, name, TIMEOUT, deadline=deadline)


def question(row: Mapping[str, Any]) -> str:
    """What the policy is asked."""
    starter = row["starter_code"]
    form = FUNCTION.format(starter=starter) if starter else STDIN
    return PROMPT.format(question=row["question_content"], form=form)


def program(reply: str) -> str:
    """The code between the last two lines with a fence, outside the thinking; '' if none."""
    lines = parsing.without_thinking(reply).split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else ""


def _check_package() -> None:
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise Absent(f"the package {PACKAGE} is not installed", COMMAND) from error
    if version != VERSION:
        raise Absent(f"{PACKAGE} is {version}, not {VERSION}", COMMAND)
