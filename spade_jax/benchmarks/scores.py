"""Scores of a benchmark, with intervals, as JSON and as a table."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from spade_jax.benchmarks.interface import WON, Figures, Item, Outcome

Z = 1.959963984540054  # of a 95 % interval


@dataclasses.dataclass(frozen=True)
class Score:
    """Share of ``tried`` of ``items`` items that were won, and its 95 % interval.

    Attributes:
      faults: how many of those tried were lost without being judged.
      credit: mean score, in which partial credit counts.
    """

    column: str
    mean: float
    low: float
    high: float
    tried: int
    items: int
    faults: int
    credit: float

    @property
    def partial(self) -> bool:
        return self.tried < self.items


def wilson(rate: float, count: float) -> tuple[float, float]:
    """95 % interval of a rate (Wilson 1927) seen in ``count`` independent trials."""
    scale = 1 + Z * Z / count
    middle = (rate + Z * Z / (2 * count)) / scale
    spread = Z * math.sqrt(rate * (1 - rate) / count + (Z / (2 * count)) ** 2) / scale
    return max(0.0, middle - spread), min(1.0, middle + spread)


def independent(wins: Mapping[str, Sequence[bool]]) -> float:
    """How many independent trials tell as much as these samples of problems.

    The variance of the mean is estimated between problems (ratio estimator of cluster sampling,
    Cochran 1977, 6.2); the number is the one with that variance (Korn & Graubard 1998), at least
    that of the problems and at most that of the samples.

    Args:
      wins: problem -> of each of its samples, whether it was won.
    """
    problems, count = len(wins), sum(map(len, wins.values()))
    rate = sum(map(sum, wins.values())) / count
    spread = sum((sum(won) - rate * len(won)) ** 2 for won in wins.values())
    if problems == count or not spread:
        return problems
    variance = spread * problems / (problems - 1) / count**2
    return min(max(rate * (1 - rate) / variance, problems), count)


def of_columns(items: Sequence[Item], outcomes: Iterable[Outcome]) -> list[Score]:
    """The score of every column that was tried, in the order of the data."""
    totals = Counter(item.column for item in items)
    problems = {item.name: item.problem or item.name for item in items}
    tried: dict[str, list[Outcome]] = {column: [] for column in totals}
    for outcome in outcomes:
        tried[outcome.column].append(outcome)
    return [_score(column, these, totals, problems) for column, these in tried.items() if these]


def _score(
    column: str,
    these: Sequence[Outcome],
    totals: Mapping[str, int],
    problems: Mapping[str, str],
) -> Score:
    wins: dict[str, list[bool]] = {}
    for outcome in these:
        wins.setdefault(problems[outcome.item], []).append(outcome.score >= WON)
    count = len(these)
    rate = sum(map(sum, wins.values())) / count
    ends = wilson(rate, independent(wins))
    credit = sum(outcome.score for outcome in these) / count
    faults = sum(bool(outcome.fault) for outcome in these)
    return Score(column, rate, *ends, count, totals[column], faults, credit)


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
    tried, items = sum(score.tried for score in scores), sum(score.items for score in scores)
    faults = sum(score.faults for score in scores)
    credit = sum(score.credit for score in scores) / count
    ends = max(0.0, middle - below), min(1.0, middle + above)  # rounding goes beyond
    return Score("mean", middle, *ends, tried, items, faults, credit)


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
    beside: Figures,
) -> Group:
    """The scores in per cent; below them published figures and floors, where there are any.

    Where there is partial credit, a column has the mean score in which it counts.
    """
    scores = of_columns(items, outcomes)
    columns = list(dict.fromkeys(item.column for item in items))
    partial = "" if len(outcomes) == len(items) else f": PARTIAL, {len(outcomes)} of {len(items)}"
    shown = Table(title=f"{title}{partial}", title_justify="left")
    shown.add_column("column", no_wrap=True)
    headings = ["score", "95 % interval", "tried", "of", "not judged"]
    if any(score.credit != score.mean for score in scores):
        headings.append("with credit")
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    rows = [_row(score)[: len(headings) + 1] for score in scores]
    if len(columns) > 1:
        whole = len(scores) == len(columns)
        total = _row(mean(scores)) if whole else ["mean", *"––––––"]
        rows.append(total[: len(headings) + 1])
    for place, row in enumerate(rows):
        shown.add_row(*row, end_section=place == len(scores) - 1)
    return Group(shown, _beside(columns, beside)) if beside else Group(shown)


def _row(score: Score) -> list[str]:
    rate, low, high = (f"{100 * value:.1f}" for value in (score.mean, score.low, score.high))
    counts = (str(count) for count in (score.tried, score.items, score.faults))
    return [score.column, rate, f"{low}–{high}", *counts, f"{100 * score.credit:.1f}"]


def _beside(columns: Sequence[str], figures: Figures) -> Table:
    """A row for each of ``figures``, a column for each that any of them has."""
    known = [name for name in (*columns, "mean") if any(name in row for row in figures.values())]
    shown = Table("beside it", title_justify="left")
    for name in known:
        shown.add_column(name, justify="right")
    for title, row in figures.items():
        cells = (f"{row[name]:.1f}" if name in row else "–" for name in known)
        shown.add_row(title, *cells)
    return shown
