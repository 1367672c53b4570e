"""What is compared is comparable: the same rules, the same items."""

import math

import pytest

from spade_jax.analysis import evaluations
from spade_jax.analysis.evaluations import Estimate
from spade_jax.analysis.run import NoRunError
from spade_jax.benchmarks import scores
from spade_jax.benchmarks.interface import Item, Outcome
from spade_jax.benchmarks.results import Results


def evaluate(workdir, policy, won, lost=(), rules="usual", benchmark="quiz", said=(), column=""):
    """Results as the command leaves them; ``said``: the same messages for every item."""
    folder = workdir / "evaluation" / policy / benchmark
    protocol = {"benchmark": benchmark, "rules": rules, "policy": {"name": policy}}
    with Results(folder, protocol) as results:
        for item in (*won, *lost):
            record = {"said": [dict(message) for message in said]}
            results.add(Outcome(item, column or item[0], float(item in won), "", "", record))


def test_runs_and_sweeps_by_variant(tmp_path):
    for folder in ("alone", "sweep/full/seed_0", "sweep/full/seed_1", "sweep/none/seed_0"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.jsonl").touch()
    (tmp_path / "sweep/none/seed_1").mkdir()  # has not begun
    found = evaluations.variants([tmp_path / "alone", tmp_path / "sweep"])
    assert {each.name: [run.name for run in each.runs] for each in found} == {
        "alone": ["alone"], "full": ["seed_0", "seed_1"], "none": ["seed_0"],
    }  # fmt: skip
    with pytest.raises(NoRunError, match="of a run or of a sweep"):
        evaluations.variants([tmp_path / "sweep" / "none" / "seed_1"])


def test_checkpoints_in_order_without_foreign_policies(tmp_path):
    for policy in ("step-10", "initial", "step-2", "hf-somebody"):
        evaluate(tmp_path, policy, ["a1"])
    assert [each.iteration for each in evaluations.of_run(tmp_path)] == [0, 2, 10]


def test_a_line_under_way_does_not_count(tmp_path):
    evaluate(tmp_path, "step-2", ["a1"])
    with (tmp_path / "evaluation/step-2/quiz/items.jsonl").open("a") as file:
        file.write('{"item": "a2"')
    [each] = evaluations.of_run(tmp_path)
    assert list(each.outcomes) == ["a1"]


def test_only_equal_rules_and_common_items_are_compared(tmp_path):
    evaluate(tmp_path, "initial", ["a1"], ["a2", "b1", "b2"])
    evaluate(tmp_path, "step-2", ["a1", "b1"], ["a3"])
    evaluate(tmp_path, "step-4", ["a1"], rules="lax")
    tasks = evaluations.by_task(evaluations.of_run(tmp_path))
    found = {
        (name, each.iteration): sorted(each.outcomes)
        for (name, _), group in tasks.items()
        for each in group
    }
    assert found == {("quiz", 0): ["a1", "b1"], ("quiz", 2): ["a1", "b1"], ("quiz", 4): ["a1"]}
    usual, _ = tasks.values()
    assert [evaluations.score(each).mean for each in usual] == [0.5, 1.0]


def test_the_score_of_all_items_is_that_of_the_result(tmp_path):
    won, lost = ["a1", "a2", "b1"], ["a3", "b2"]
    evaluate(tmp_path, "initial", won, lost)
    [each] = evaluations.of_run(tmp_path)
    items = [Item(name, name[0], {}) for name in (*won, *lost)]
    whole = scores.summary(items, list(each.outcomes.values()))["mean"]
    assert evaluations.score(each) == Estimate(whole["mean"], whole["low"], whole["high"])


def test_seeds_and_gains_by_hand(tmp_path):
    one, two = Estimate(0.2, 0.0, 0.5), Estimate(0.4, 0.3, 0.5)
    assert evaluations.over_seeds([one]) == one
    both = evaluations.over_seeds([one, two])
    assert (both.mean, both.high - both.mean) == pytest.approx((0.3, 0.1))  # 0.1414 / root of 2
    evaluate(tmp_path, "initial", ["a1"], ["a2", "a3", "a4"])
    evaluate(tmp_path, "step-1", ["a1", "a2", "a3"], ["a4"])
    gain = evaluations.gain(*evaluations.of_run(tmp_path))  # differences 0, 1, 1, 0
    assert (gain.mean, gain.high - gain.mean) == pytest.approx((0.5, 1.96 * 0.5 / math.sqrt(4)))


def test_samples_of_a_problem_are_not_independent(tmp_path):
    """Two problems, always solved and never: as uncertain as two items, however many samples."""
    won, lost = ([f"{problem}/{sample}" for sample in range(50)] for problem in (1, 2))
    evaluate(tmp_path / "many", "initial", [], [*won, *lost], column="all")
    evaluate(tmp_path / "many", "step-1", won, lost, column="all")
    evaluate(tmp_path / "two", "initial", [], ["a", "b"], column="all")
    evaluate(tmp_path / "two", "step-1", ["a"], ["b"], column="all")
    (_, many), (before, two) = (evaluations.of_run(tmp_path / name) for name in ("many", "two"))
    assert evaluations.score(many) == evaluations.score(two)
    first, _ = evaluations.of_run(tmp_path / "many")
    assert evaluations.gain(first, many) == evaluations.gain(before, two)
