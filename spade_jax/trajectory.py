"""A run's checkpoints scored one after another, and which of them one would choose, and how."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from spade_jax import config, evaluation
from spade_jax.benchmarks import published
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints

DEVELOPMENT = "reasoning_gym_dev"
"""What a checkpoint is chosen by so that no benchmark is both chosen by and reported."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A way to choose a checkpoint, what it chooses, and the benchmarks' average there."""

    rule: str
    step: int
    average: float


async def evaluate_all(
    settings: config.Config,
    workdir: Path,
    wanted: evaluation.Wanted,
    out: Path | None,
    console: Console,
) -> dict[int, published.Results]:
    """Scores every checkpoint of the run, and the development split with it; prints the choices.

    Raises:
      CheckpointError: the run has none.
    """
    folder = workdir / "checkpoints"
    if not folder.is_dir():
        raise CheckpointError(f"{workdir}: no checkpoints; train first, or name another --workdir")
    with Checkpoints(folder, keep=1, writable=False) as checkpoints:
        steps = checkpoints.steps()
    if DEVELOPMENT not in wanted.benchmarks:
        wanted = dataclasses.replace(wanted, benchmarks=[*wanted.benchmarks, DEVELOPMENT])
    found: dict[int, published.Results] = {}
    for step in steps:
        console.print(f"step {step}")
        place = out / f"step-{step}" if out else None
        arguments = (settings, workdir, wanted, str(step), place, console)
        found[step] = await evaluation.evaluate(*arguments)
    _show(found, (out or workdir / "evaluation") / "trajectory.json", console)
    return found


def averages(results: published.Results) -> dict[str, float]:
    """Benchmark -> the mean of its columns; only where all were tried."""
    return {
        name: result["mean"]["mean"]
        for name, result in results.items()
        if isinstance(result, dict) and result["mean"]
    }


def choices(found: Mapping[int, published.Results]) -> list[Chosen]:
    """By the average of the benchmarks themselves (the paper's rule), by the split, the last one.

    The average is the plain mean of the benchmarks that every step has; empty where there is none.
    """
    table = {step: averages(results) for step, results in found.items()}
    common = [name for name in _everywhere(table) if name != DEVELOPMENT]
    if not common:
        return []
    average = {step: sum(row[name] for name in common) / len(common) for step, row in table.items()}
    rules = {"best on the benchmarks themselves (the paper's)": average}
    if DEVELOPMENT in _everywhere(table):
        rules[f"best on {DEVELOPMENT}"] = {s: row[DEVELOPMENT] for s, row in table.items()}
    rules["last"] = {step: float(step) for step in table}
    # Of equal ones the earliest.
    best = {rule: min(values, key=lambda s: (-values[s], s)) for rule, values in rules.items()}
    return [Chosen(rule, step, average[step]) for rule, step in best.items()]


def _everywhere(table: Mapping[int, Mapping[str, float]]) -> list[str]:
    first: Sequence[str] = list(next(iter(table.values()), {}))
    return [name for name in first if all(name in row for row in table.values())]


def _show(found: Mapping[int, published.Results], path: Path, console: Console) -> None:
    table = {step: averages(results) for step, results in found.items()}
    names = list(dict.fromkeys(name for row in table.values() for name in row))
    partial = {
        name
        for results in found.values()
        for name, result in results.items()
        if isinstance(result, dict) and result["partial"]
    }
    shown = Table(title="checkpoints, in per cent", title_justify="left")
    shown.add_column("step", justify="right")
    for name in names:
        shown.add_column(f"{name} (PARTIAL)" if name in partial else name, justify="right")
    for step, row in table.items():
        cells = (f"{100 * row[name]:.1f}" if name in row else "–" for name in names)
        shown.add_row(str(step), *cells)
    console.print(shown)
    chosen = choices(found)
    for choice in chosen:
        console.print(
            f"{choice.rule}: step {choice.step}, average {100 * choice.average:.1f}",
            highlight=False,
        )
    rows: list[dict[str, Any]] = [{"step": step} | row for step, row in table.items()]
    content = {
        "steps": rows,
        "partial": sorted(partial),
        "chosen": [dataclasses.asdict(choice) for choice in chosen],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {path}", highlight=False, soft_wrap=True)
