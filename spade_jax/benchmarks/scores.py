"""Scores of a benchmark, with intervals, as JSON and as a table."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import scipy.stats
from rich.table import Table

from spade_jax.benchmarks.interface import Item, Outcome


@dataclasses.dataclass(frozen=True)
class Score:
    """Mean score of ``tried`` of ``items`` items and its 95 % interval.

    Attributes:
      faults: how many of those tried were lost without being judged.
    """

    column: str
    mean: float
    low: float
    high: float
    tried: int
    items: int
    faults: int

    @property
    def partial(self) -> bool:
        return self.tried < self.items


def wilson(wins: int, count: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson 1927)."""
    low, high = scipy.stats.binomtest(wins, count).proportion_ci(method="wilson")
    return float(low), float(high)


def of_columns(items: Sequence[Item], outcomes: Iterable[Outcome]) -> list[Score]:
    """The score of every column that was tried, in the order of the data; all are won or lost."""
    totals = Counter(item.column for item in items)
    tried: dict[str, list[Outcome]] = {column: [] for column in totals}
    for outcome in outcomes:
        tried[outcome.column].append(outcome)
    found = []
    for column, these in tried.items():
        if these:
            wins, faults = sum(o.score == 1 for o in these), sum(bool(o.fault) for o in these)
            ends = wilson(wins, len(these))
            rate = wins / len(these)
            found.append(Score(column, rate, *ends, len(these), totals[column], faults))
    return found


def mean(scores: Sequence[Score]) -> Score:
    """The plain mean of the columns.

    Its interval joins theirs as independent ones (MOVER, Zou & Donner 2008): each end lies as far
    from the mean as the root of the sum of the squares of the columns' distances, divided by their
    number.
    """
    count = len(scores)
    middle = sum(score.mean for score in scores) / count
    below = math.sqrt(sum((score.mean - score.low) ** 2 for score in scores)) / count
    above = math.sqrt(sum((score.high - score.mean) ** 2 for score in scores)) / count
    counts = (
        sum(getattr(score, name) for score in scores) for name in ("tried", "items", "faults")
    )
    return Score("mean", middle, middle - below, middle + above, *counts)


def summary(items: Sequence[Item], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``result.json`` says. A mean is that of the benchmark only if no column is missing."""
    scores = of_columns(items, outcomes)
    missing = sorted({item.column for item in items} - {score.column for score in scores})
    total = mean(scores)
    return {
        "partial": total.tried < len(items),
        "tried": total.tried,
        "items": len(items),
        "columns": [dataclasses.asdict(score) for score in scores],
        "columns_missing": missing,
        "mean": None if missing else dataclasses.asdict(total),
        "faults": {outcome.item: outcome.fault for outcome in outcomes if outcome.fault},
        "verdicts": dict(Counter(outcome.verdict or "right" for outcome in outcomes)),
    }


def table(
    title: str,
    items: Sequence[Item],
    outcomes: Sequence[Outcome],
    paper: Mapping[str, float],
) -> Table:
    """The scores in per cent; below them the published figures of the mean."""
    scores = of_columns(items, outcomes)
    whole = len(scores) == len({item.column for item in items})
    partial = "" if len(outcomes) == len(items) else f": PARTIAL, {len(outcomes)} of {len(items)}"
    shown = Table(title=f"{title}{partial}", title_justify="left")
    shown.add_column("column", no_wrap=True)
    for heading in ("score", "95 % interval", "tried", "of", "not judged"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for score in [*scores, *([mean(scores)] if whole else [])]:
        rate, low, high = (f"{100 * value:.1f}" for value in (score.mean, score.low, score.high))
        counts = (str(count) for count in (score.tried, score.items, score.faults))
        shown.add_row(score.column, rate, f"{low}–{high}", *counts)
    shown.add_section()
    for name, figure in paper.items():
        shown.add_row(f"mean, paper: {name}", f"{figure:.1f}")
    return shown
