"""GPQA-Diamond on made-up rows: order of options, letters however they are written."""

import asyncio
import collections
import csv

import pytest

from spade_jax.benchmarks import gpqa, runner, scores
from spade_jax.benchmarks.gpqa import GPQADiamond, letter
from spade_jax.benchmarks.interface import Absent
from tests.benchmarks.scripted_policy import ScriptedPolicy

COLUMNS = ("Record ID", "Question", gpqa.RIGHT, *gpqa.WRONG, "Subdomain")


class Quiet:
    def advance(self):
        pass


def write(folder, count=198, **changes):
    with (folder / "gpqa_diamond.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for number in range(count):
            options = [f" {number} plus {extra}\n" for extra in range(4)]
            values = (f"rec{number}", f'Made up: is "{number}", say,\neven?', *options, "Sums")
            row = dict(zip(COLUMNS, values, strict=True))
            table.writerow(row | (changes if number == 5 else {}))


def test_options_come_in_an_order_of_the_rows_own(tmp_path):
    write(tmp_path)
    items = GPQADiamond(tmp_path).items()
    assert items == GPQADiamond(tmp_path).items()
    assert len(items) == 396
    golds = collections.Counter(item.data["gold"] for item in items)
    assert set(golds) == set("ABCD")
    assert min(golds.values()) > 60  # of 99 expected
    for item in items:
        number = int(item.problem) - 1
        assert item.data["options"]["ABCD".index(item.data["gold"])] == f"{number} plus 0"
        assert sorted(item.data["options"]) == [f"{number} plus {extra}" for extra in range(4)]


def test_equal_options_do_not_move_the_right_one(tmp_path):
    write(tmp_path, **{gpqa.RIGHT: "same", gpqa.WRONG[0]: "same"})
    golds = {item.data["gold"] for item in GPQADiamond(tmp_path).items() if item.problem == "6"}
    write(tmp_path)
    assert golds == {i.data["gold"] for i in GPQADiamond(tmp_path).items() if i.problem == "6"}


def test_absent_and_incomplete_files_are_told(tmp_path):
    with pytest.raises(Absent, match=r"hf download Idavidrein/gpqa .*terms"):
        GPQADiamond(tmp_path).items()
    write(tmp_path, count=197)
    with pytest.raises(Absent, match="holds 197 rows, not 198"):
        GPQADiamond(tmp_path).items()
    write(tmp_path, **{gpqa.WRONG[1]: ""})
    with pytest.raises(Absent, match="a row without Incorrect Answer 2"):
        GPQADiamond(tmp_path).items()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        # What the published extractions misread.
        (r"\boxed{\textbf{C}}", "C"),
        (r"\boxed{Answer: C}", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"Maybe \boxed{A}. No: \boxed{D}", "D"),
        ("The answer is A? Rather, the answer is C.", "C"),
        # Dress.
        (r"\boxed{C}", "C"),
        (r"\boxed{c}", "C"),
        (r"\boxed{(C)}", "C"),
        (r"\boxed{C.}", "C"),
        (r"\boxed{$\mathbf{C}$}", "C"),
        (r"\boxed{\mathrm{(B)}}", "B"),
        (r"\boxed{\text{(B) } 3 \times 10^8}", "B"),
        (r"\boxed{C) A large one}", "C"),
        (r"\boxed{Option D}", "D"),
        (r"\boxed{\text{The answer is } B}", "B"),
        ("**Answer: B**", "B"),
        ("The correct answer is **(D)**.", "D"),
        ("So the best choice is $\\textbf{A}$.", "A"),
        # An option's text in the box.
        (r"\boxed{3\times 10^8 \text{ m/s}}", "D"),
        (r"\boxed{bad cat}", "A"),
        # Nothing to choose by.
        (r"\boxed{A and C}", None),
        (r"\boxed{42}", None),
        ("I am at a loss.", None),
        ("That is no answer. A bad day.", None),
        (r"<think>\boxed{A}</think> I give up.", None),
    ],
)
def test_letters_however_they_are_written(reply, expected):
    options = ["bad cat", "two\nwords", "Co", "$3\\times 10^8$ m/s"]
    assert letter(reply, options) == expected


def test_a_box_with_a_text_that_two_options_share_chooses_none():
    assert letter(r"\boxed{same}", ["same", "same", "x", "y"]) is None


def test_the_oracle_is_right_and_a_constant_player_guesses(tmp_path):
    write(tmp_path)
    benchmark = GPQADiamond(tmp_path)
    items = benchmark.items()
    by_name = {f"gpqa_diamond/{item.name}": item for item in items}

    def play(reply):
        policy, outcomes = ScriptedPolicy(lambda name: [reply(by_name[name])]), []
        asyncio.run(runner.run(benchmark, items, policy, 8, outcomes.append, Quiet()))
        (score,) = scores.of_columns(items, outcomes)
        return score, policy

    right, policy = play(lambda item: f"\\boxed{{{item.data['gold']}}}")
    assert right.mean == 1
    constant, _ = play(lambda _: "\\boxed{B}")
    assert constant.low < 0.25 < constant.high
    first = items[0].data["options"]
    assert f"A) {first[0]}\nB) {first[1]}\n" in policy.told["gpqa_diamond/1/0"][0]["content"]
