"""AIME: every published schema, the last balanced box, integers from 0 to 999."""

import asyncio
import json

import pyarrow
import pyarrow.parquet
import pytest

from spade_jax.benchmarks import runner, scores
from spade_jax.benchmarks.aime import AIME, answer, integer
from spade_jax.benchmarks.interface import Absent
from tests.benchmarks.scripted_policy import ScriptedPolicy

PROBLEMS = [(f"What is {number} + 7?", number + 7) for number in range(30)]


class Quiet:
    def advance(self):
        pass


def rows(schema):
    for number, (text, gold) in enumerate(PROBLEMS):
        yield {
            "matharena": {"problem_idx": number, "problem": text, "answer": gold},
            "math-ai": {"id": str(number), "problem": text, "answer": str(gold)},
            "rlve": {"user_prompt": text, "ground_truth": str(gold)},
            "nemo": {"id": number, "problem": text, "expected_answer": f"{gold:03d}"},
            "mmath": {"question": text, "answer": str(gold), "lang": "en"},
            "chat": {"prompt": [{"role": "user", "content": text}], "label": str(gold)},
        }[schema]


def write(folder, schema, suffix):
    made = list(rows(schema))
    folder.mkdir(exist_ok=True)
    path = folder / f"aime_2025{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(made), path)
    elif suffix == ".json":
        path.write_text(json.dumps(made))
    else:
        path.write_text("\n".join(map(json.dumps, made)) + "\n\n")


@pytest.mark.parametrize(
    ("schema", "suffix"),
    [("matharena", ".parquet"), ("math-ai", ".jsonl"), ("rlve", ".json"), ("nemo", ".jsonl"),
     ("mmath", ".json"), ("chat", ".jsonl")],
)  # fmt: skip
def test_every_schema_gives_the_same_items_and_protocol(tmp_path, schema, suffix):
    write(tmp_path, schema, suffix)
    write(tmp_path / "other", "matharena", ".json")
    benchmark, other = AIME(2025, tmp_path), AIME(2025, tmp_path / "other")
    items = benchmark.items()
    assert items == other.items()
    assert benchmark.protocol() == other.protocol()
    assert len(items) == 960
    assert [items[0].data["problem"], items[0].data["gold"]] == list(PROBLEMS[0])
    assert len({item.problem for item in items}) == 30


def test_absent_and_partial_data_are_told_with_the_command(tmp_path):
    with pytest.raises(Absent, match=r"hf download MathArena/aime_2026 .*aime_2026$"):
        AIME(2026, tmp_path).items()
    (tmp_path / "aime_2026").mkdir()
    half = "\n".join(json.dumps(row) for row in list(rows("nemo"))[:15])
    (tmp_path / "aime_2026" / "test.jsonl").write_text(half)
    with pytest.raises(Absent, match="15 problems, not the 30 of AIME I and II"):
        AIME(2026, tmp_path).items()
    (tmp_path / "aime_2026" / "test.jsonl").write_text('{"problem": "1 + 1?", "answer": "two"}')
    with pytest.raises(Absent, match="with the answer 'two': it has answer, problem"):
        AIME(2026, tmp_path).items()
    (tmp_path / "aime_2026" / "test.jsonl").write_text('{"problem"')
    with pytest.raises(Absent, match="cannot be read"):
        AIME(2026, tmp_path).items()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("204", 204),
        ("025", 25),
        ("000", 0),
        (r"\text{204}", 204),
        (r"\textbf{204}", 204),
        (r"204^\circ", 204),
        (r"204^{\circ}", 204),
        ("204°", 204),
        ("$73$", 73),
        ("m + n = 73", 73),
        ("73.", 73),
        ("73.0", 73),
        (r"7\,3", 73),
        ("999", 999),
        ("1000", None),
        ("1,024", None),
        ("3,4", None),
        ("-5", None),
        ("73.5", None),
        (r"\frac{1}{2}", None),
        ("", None),
        ("²", None),
    ],
)
def test_integers_however_dressed(text, expected):
    assert integer(text) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (r"So \boxed{1}, no: \boxed{\text{204}}.", 204),
        (r"<think>\boxed{7}</think> \boxed{8}", 8),
        (r"<think>\boxed{7}", None),
        (r"\boxed{12", None),
        ("The answer is 12.", None),
    ],
)
def test_the_last_balanced_box_counts(reply, expected):
    assert answer(reply) == expected


def test_score_is_the_mean_over_problems_and_samples(tmp_path):
    write(tmp_path, "nemo", ".jsonl")
    benchmark = AIME(2025, tmp_path)
    items = benchmark.items()

    def replies(name):
        _, number, sample = name.split("/")
        gold = PROBLEMS[int(number) - 1][1]
        return [f"\\boxed{{{gold if int(number) <= 10 and int(sample) < 16 else 998}}}"]

    policy, outcomes = ScriptedPolicy(replies), []
    asyncio.run(runner.run(benchmark, items, policy, 8, outcomes.append, Quiet()))
    (score,) = scores.of_columns(items, outcomes)
    assert score.mean == 160 / 960
    # Ten problems half right, twenty wrong: 30 problems tell less than 960 independent trials.
    low, high = scores.wilson(160 / 960, 960)
    assert score.low < low < high < score.high
    assert {outcome.verdict for outcome in outcomes} == {"", "wrong"}
    told = policy.told["aime_2025/1/0"][0]["content"]
    assert told.startswith(PROBLEMS[0][0])
    assert "\\boxed{}" in told
