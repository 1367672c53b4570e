"""The paper's two tables of Qwen3-30B-A3B, and a policy's row beside theirs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spade_jax.benchmarks import scores
from spade_jax.benchmarks.interface import Figures
from spade_jax.benchmarks.scores import Score

ROWS = ("Qwen3-30B-A3B", "SPADE")
MEAN = "mean"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: what it is called, where we measure it, the paper's rows in per cent."""

    title: str
    benchmark: str
    column: str
    figures: tuple[float, float]


TABLES: dict[str, tuple[Column, ...]] = {
    "games": (
        Column("AIME 2025", "aime_2025", "aime_2025", (61.5, 62.8)),
        Column("AIME 2026", "aime_2026", "aime_2026", (73.5, 74.4)),
        Column("GPQA-Diamond", "gpqa_diamond", "gpqa_diamond", (70.4, 75.8)),
        Column("LiveCodeBench-v6", "livecodebench_v6", "livecodebench_v6", (43.2, 47.3)),
        Column("RG math", "reasoning_gym_hard", "math", (45.0, 63.3)),
        Column("RG algorithmic", "reasoning_gym_hard", "algorithmic", (18.0, 32.1)),
        Column("RG cognition", "reasoning_gym_hard", "cognition", (23.0, 37.7)),
        Column("RG logic", "reasoning_gym_hard", "logic", (67.0, 72.8)),
    ),
    "tools": (
        Column("BFCL v4 multi-turn", "bfcl_multi_turn", MEAN, (49.0, 54.7)),
        Column("tau2-bench", "tau2", MEAN, (49.0, 52.6)),
        Column("ACEBench-Agent", "acebench_agent", MEAN, (62.0, 75.9)),
    ),
}
MEANS = {"games": (50.2, 58.3), "tools": (53.3, 61.1)}
Results = Mapping[str, dict[str, Any] | str]
"""Benchmark -> its summary (:func:`scores.summary`), or why it was not scored."""


def names(table: str) -> list[str]:
    """The benchmarks of a table."""
    return list(dict.fromkeys(column.benchmark for column in TABLES[table]))


def beside(benchmark: str) -> Figures:
    """The paper's figures of a benchmark, by the columns of ours."""
    columns = [c for table in TABLES.values() for c in table if c.benchmark == benchmark]
    found = {
        f"paper: {row}": {column.column: column.figures[place] for column in columns}
        for place, row in enumerate(ROWS)
    }
    return found if columns else {}


def average(found: Sequence[Score | None]) -> Score | None:
    """The mean of a table's columns; None unless all are there and none is partial."""
    whole = [score for score in found if score is not None and not score.partial]
    return scores.mean(whole) if len(whole) == len(found) else None


def of_table(name: str, results: Results) -> list[Score | None]:
    """The columns of a table as they were measured; None where one was not."""
    return [_measured(results.get(column.benchmark), column.column) for column in TABLES[name]]


def _measured(result: dict[str, Any] | str | None, column: str) -> Score | None:
    if not isinstance(result, dict) or result.get("label"):
        return None
    rows = [row for row in (*result["columns"], result["mean"]) if row and row["column"] == column]
    return Score(**rows[-1]) if rows else None


def overview(name: str, results: Results) -> Group:
    """One of the paper's tables with our figures; what is missing is named, never averaged over."""
    shown = Table(title=f"{name}, in per cent", title_justify="left")
    shown.add_column("benchmark", no_wrap=True)
    shown.add_column("score", justify="right", no_wrap=True)
    shown.add_column("95 % interval", justify="right", no_wrap=True)
    for row in ROWS:
        shown.add_column(f"paper: {row}", justify="right")
    found, notes = of_table(name, results), []
    for column, score in zip(TABLES[name], found, strict=True):
        shown.add_row(column.title, *_cells(score), *(f"{figure:.1f}" for figure in column.figures))
        if score is None:
            missing = _why(results.get(column.benchmark, "not asked for"))
            notes.append(f"  missing: {column.title}: {missing}")
        elif score.partial:
            notes.append(f"  PARTIAL: {column.title}: {score.tried} of {score.items}")
    shown.add_section()
    shown.add_row(f"mean of {len(found)}", *_cells(average(found)), *map(str, MEANS[name]))
    return Group(shown, *map(Text, notes))


def _why(result: dict[str, Any] | str) -> str:
    """Why there is no score of a column."""
    if isinstance(result, str):
        return result
    return f"does not compare: {result['label']}" if result.get("label") else "no item tried"


def _cells(score: Score | None) -> tuple[str, str]:
    if score is None:
        return "–", "–"
    return f"{100 * score.mean:.1f}", f"{100 * score.low:.1f}–{100 * score.high:.1f}"
