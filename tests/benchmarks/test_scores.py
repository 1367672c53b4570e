"""Intervals against closed forms and simulation; partial sets are called so."""

import io
import random

import pytest
import scipy.stats
from rich.console import Console

from spade_jax.benchmarks import scores
from spade_jax.benchmarks.interface import Item, Outcome


@pytest.mark.parametrize(("wins", "count"), [(0, 20), (1, 20), (98, 200), (200, 200), (5, 9)])
def test_wilson_is_scipys(wins, count):
    oracle = scipy.stats.binomtest(wins, count).proportion_ci(method="wilson")
    assert scores.wilson(wins / count, count) == pytest.approx(tuple(oracle), abs=1e-9)


def made(rates, count, total=None):
    """Items and outcomes: in column i the first ``rates[i] * count`` are won."""
    items, outcomes = [], []
    for column, rate in enumerate(rates):
        for index in range(total or count):
            items.append(Item(f"{column}/{index}", str(column), {}))
            if index < count:
                won = index < rate * count
                verdict = "" if won else "wrong"
                outcomes.append(Outcome(f"{column}/{index}", str(column), won, verdict, "", {}))
    return items, outcomes


def test_interval_of_the_mean_covers_as_often_as_it_says():
    rng = random.Random(0)
    rates, count, covered = (0.1, 0.3, 0.6, 0.9), 50, 0
    ends = [scores.wilson(wins / count, count) for wins in range(count + 1)]
    for _ in range(400):
        found = []
        for rate in rates:
            wins = sum(rng.random() < rate for _ in range(count))
            found.append(scores.Score("", wins / count, *ends[wins], count, count, 0, 0.0))
        total = scores.mean(found)
        covered += total.low <= sum(rates) / 4 <= total.high
    assert 0.92 <= covered / 400 <= 0.98  # 95 % and three standard errors of 400 draws


def sampled(rates, samples, rng):
    """Items and outcomes of one column: problem i is solved with probability ``rates[i]``."""
    items = [
        Item(f"{problem}/{sample}", "c", {}, str(problem))
        for problem in range(len(rates))
        for sample in range(samples)
    ]
    outcomes = [
        Outcome(item.name, "c", float(rng.random() < rates[int(item.problem)]), "", "", {})
        for item in items
    ]
    return items, outcomes


def test_interval_of_samples_covers_the_rate_of_all_problems():
    """Samples of a problem are alike: Wilson over all of them would be far too sure."""
    rng, covered, naive, trials = random.Random(1), 0, 0, 200
    for _ in range(trials):
        rates = [rng.betavariate(0.5, 0.5) for _ in range(30)]
        items, outcomes = sampled(rates, 8, rng)
        (score,) = scores.of_columns(items, outcomes)
        low, high = scores.wilson(score.mean, len(outcomes))
        covered += score.low <= 0.5 <= score.high
        naive += low <= 0.5 <= high
    assert 0.9 <= covered / trials <= 0.99  # 95 % and three standard errors of 200 draws
    assert naive / trials < 0.75


def test_samples_of_one_problem_each_are_plain_wilson_and_equal_ones_count_once():
    items, outcomes = sampled([0.5] * 40, 1, random.Random(2))
    (score,) = scores.of_columns(items, outcomes)
    assert (score.low, score.high) == scores.wilson(score.mean, 40)
    items, outcomes = sampled([0.0] * 12, 5, random.Random(3))
    (score,) = scores.of_columns(items, outcomes)
    assert (score.low, score.high) == scores.wilson(0, 12)


def test_partial_credit_is_no_win():
    items, outcomes = made((0.5,), 4)
    outcomes[3] = Outcome("0/3", "0", 0.25, "wrong", "", {})
    (score,) = scores.of_columns(items, outcomes)
    assert (score.mean, score.credit) == (0.5, 0.5625)


def shown(items, outcomes, beside=None):
    """What the table shows: its text, and the cells of each of its rows."""
    console = Console(width=200, file=io.StringIO())
    console.print(scores.table("T", items, outcomes, beside or {}))
    text = console.file.getvalue()
    return text, [line.split()[1::2] for line in text.splitlines() if "│" in line]


def test_partial_credit_has_a_column_where_there_is_some():
    items, outcomes = made((0.5, 1.0), 4)
    assert "with credit" not in shown(items, outcomes)[0]
    outcomes[3] = Outcome("0/3", "0", 0.25, "wrong", "", {})
    text, rows = shown(items, outcomes)
    assert "with credit" in text
    assert [row[-1] for row in rows] == ["56.2", "100.0", "78.1"]
    assert ["mean", *"––––––"] in shown(items, outcomes[:4])[1]


def test_mean_is_that_of_the_columns():
    items, outcomes = made((0.5, 1.0), 10)
    summary = scores.summary(items, outcomes)
    assert summary["mean"]["mean"] == 0.75
    assert not summary["partial"]
    assert summary["mean"]["low"] < 0.75 < summary["mean"]["high"] <= 1


@pytest.mark.parametrize("tried", [7, 63, 128, 200])
def test_the_interval_of_a_mean_has_no_impossible_values(tried):
    for rate in (0.0, 1.0):
        found = scores.mean(scores.of_columns(*made((rate, rate, rate, rate), tried)))
        assert 0 <= found.low <= rate <= found.high <= 1


def test_partial_sets_are_called_so_and_missing_columns_have_no_mean():
    items, outcomes = made((0.5, 1.0), 4, total=10)
    summary = scores.summary(items, outcomes)
    assert summary["partial"]
    assert (summary["tried"], summary["items"]) == (8, 20)
    first = [outcome for outcome in outcomes if outcome.column == "0"]
    summary = scores.summary(items, first)
    assert summary["mean"] is None
    assert summary["columns_missing"] == ["1"]
    text, rows = shown(items, first, {"paper": {"mean": 12.5, "0": 3.25}})
    assert "PARTIAL, 4 of 20" in text
    assert ["mean", "–", "–", "–", "–", "–"] in rows
    assert any(line.split("│")[1:4:2] == [" paper     ", " 12.5 "] for line in text.splitlines())
    assert "3.2" in text


def test_faults_count_as_losses_and_are_listed():
    items, outcomes = made((1.0,), 3)
    outcomes[2] = Outcome("0/2", "0", 0.0, "not judged", "context: full", {})
    summary = scores.summary(items, outcomes)
    assert summary["columns"][0]["mean"] == pytest.approx(2 / 3)
    assert summary["faults"] == {"0/2": "context: full"}
    assert summary["verdicts"] == {"right": 2, "not judged": 1}
