"""Intervals against closed forms and simulation; partial sets are called so."""

import io
import math
import random

import pytest
from rich.console import Console

from spade_jax.benchmarks import scores
from spade_jax.benchmarks.interface import Item, Outcome


def closed_wilson(wins, count, z=1.959963984540054):
    rate = wins / count
    middle = rate + z * z / (2 * count)
    spread = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return [(middle + sign * spread) / (1 + z * z / count) for sign in (-1, 1)]


@pytest.mark.parametrize(("wins", "count"), [(0, 20), (1, 20), (98, 200), (200, 200), (5, 9)])
def test_wilson_is_its_closed_form(wins, count):
    assert scores.wilson(wins, count) == pytest.approx(closed_wilson(wins, count), abs=1e-9)


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
    ends = [scores.wilson(wins, count) for wins in range(count + 1)]
    for _ in range(400):
        found = []
        for rate in rates:
            wins = sum(rng.random() < rate for _ in range(count))
            found.append(scores.Score("", wins / count, *ends[wins], count, count, 0))
        total = scores.mean(found)
        covered += total.low <= sum(rates) / 4 <= total.high
    assert 0.92 <= covered / 400 <= 0.98  # 95 % and three standard errors of 400 draws


def test_mean_is_that_of_the_columns():
    items, outcomes = made((0.5, 1.0), 10)
    summary = scores.summary(items, outcomes)
    assert summary["mean"]["mean"] == 0.75
    assert not summary["partial"]
    assert summary["mean"]["low"] < 0.75 < summary["mean"]["high"] <= 1


def test_partial_sets_are_called_so_and_missing_columns_have_no_mean():
    items, outcomes = made((0.5, 1.0), 4, total=10)
    summary = scores.summary(items, outcomes)
    assert summary["partial"]
    assert (summary["tried"], summary["items"]) == (8, 20)
    first = [outcome for outcome in outcomes if outcome.column == "0"]
    summary = scores.summary(items, first)
    assert summary["mean"] is None
    assert summary["columns_missing"] == ["1"]
    console = Console(width=200, file=io.StringIO())
    console.print(scores.table("T", items, first, {"paper": 12.5}))
    text = console.file.getvalue()
    assert "PARTIAL, 4 of 20" in text
    assert text.count("mean") == 1  # the paper's


def test_faults_count_as_losses_and_are_listed():
    items, outcomes = made((1.0,), 3)
    outcomes[2] = Outcome("0/2", "0", 0.0, "not judged", "context: full", {})
    summary = scores.summary(items, outcomes)
    assert summary["columns"][0]["mean"] == pytest.approx(2 / 3)
    assert summary["faults"] == {"0/2": "context: full"}
    assert summary["verdicts"] == {"right": 2, "not judged": 1}
