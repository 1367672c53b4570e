"""Several configs, several seeds each, one after another; then one table at equal budgets.

    python -m spade_jax.sweep --configs='configs/laptop.py configs/fixed_pool.py:laptop' \\
        --seeds=3 --workdir=runs/sweep -- --config.iterations=4

Every run is a process of ``spade_jax.train`` with its own directory ``WORKDIR/CONFIG/seed_N``. The
same command goes on where the last one stopped: runs that are done are kept, one that was stopped
is continued. What stands after ``--`` goes to every run.

``WORKDIR/table.md`` (and ``table.json``, with the value of each run) compares the configs: mean and
standard error over seeds of every measure, a name of ``metrics.jsonl`` (docs/metrics.md). A measure
is the mean over the last ``--window`` rows that have it, before a run has spent more than the
cheapest of all finished runs: at equal iterations, equal episodes and equal sampled tokens, three
columns that may disagree.
"""

import argparse
import dataclasses
import json
import math
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_jax import config
from spade_jax.selfplay.records import read_metrics

Metrics = Sequence[Mapping[str, Any]]
BUDGETS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "iterations": lambda row: 1,
    "episodes": lambda row: sum(
        row.get(f"episodes/{arm}{end}", 0)
        for arm in ("plain", "hinted", "placebo")
        for end in ("", "_dropped")
    ),
    "tokens": lambda row: sum(
        row.get(f"tokens/{phase}", 0) for phase in ("design", "hint", "play")
    ),
}
"""What an iteration spends of each: episodes of all arms, tokens sampled in both roles."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One config with one seed."""

    config: str
    seed: int
    workdir: Path

    @property
    def finished(self) -> bool:
        """Whether it has gone through all its iterations: the last one is always saved."""
        try:
            settings = json.loads((self.workdir / "config.json").read_text("utf-8"))
        except FileNotFoundError:
            return False
        return (self.workdir / "checkpoints" / str(settings["iterations"])).exists()

    def train(self, arguments: Sequence[str]) -> int:
        """Starts or continues it; the exit status. SIGTERM and an interrupt have it save itself."""
        command = [sys.executable, "-m", "spade_jax.train", f"--config={self.config}"]
        command += [f"--config.seed={self.seed}", f"--workdir={self.workdir}", *arguments]
        process = subprocess.Popen(command)
        previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            return process.wait()
        except KeyboardInterrupt:  # The terminal has told the process too.
            return process.wait()
        finally:
            signal.signal(signal.SIGTERM, previous)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A measure of one config at one budget: ``values`` by seed, None where it was not measured."""

    values: dict[int, float | None]

    @property
    def known(self) -> list[float]:
        return [value for value in self.values.values() if value is not None]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.known) if self.known else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean: sample deviation / sqrt(n); None below two values."""
        if len(self.known) < 2:
            return None
        return statistics.stdev(self.known) / math.sqrt(len(self.known))

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        spread = "" if self.error is None else f" ± {self.error:.3f}"
        return f"{self.mean:.3f}{spread}"


def plan(configs: Sequence[str], seeds: int, workdir: Path) -> list[Run]:
    """All runs, every config with one seed before any with the next."""
    names = [
        re.sub(r"\W+", "_", re.sub(r"^configs/|\.py", "", name)).strip("_") for name in configs
    ]
    if len(set(names)) < len(names):
        raise config.ConfigError(f"--configs: {' '.join(configs)}: name each one once")
    return [
        Run(name, seed, workdir / folder / f"seed_{seed}")
        for seed in range(seeds)
        for name, folder in zip(configs, names, strict=True)
    ]


def measured(rows: Metrics, unit: str, budget: int, measure: str, window: int) -> float | None:
    """Mean of the last ``window`` values of ``measure`` in the first rows that ``budget`` pays."""
    spent, values = 0, []
    for row in rows:
        spent += BUDGETS[unit](row)
        if spent > budget:
            break
        if measure in row:
            values.append(row[measure])
    return statistics.fmean(values[-window:]) if values else None


def compare(
    runs: Mapping[tuple[str, int], Metrics], measures: Sequence[str], window: int
) -> tuple[dict[str, int], dict[tuple[str, str], dict[str, Cell]]]:
    """The equal budgets, and (config, measure) -> unit of budget -> cell.

    Args:
      runs: (config, seed) -> rows of its metrics.
    """
    budgets = {
        unit: min(sum(map(cost, rows)) for rows in runs.values()) for unit, cost in BUDGETS.items()
    }
    cells = {
        (name, measure): {
            unit: Cell(
                {
                    seed: measured(rows, unit, budget, measure, window)
                    for (other, seed), rows in runs.items()
                    if other == name
                }
            )
            for unit, budget in budgets.items()
        }
        for measure in measures
        for name in dict.fromkeys(name for name, _ in runs)
    }
    return budgets, cells


def markdown(
    budgets: Mapping[str, int], cells: Mapping[tuple[str, str], Mapping[str, Cell]]
) -> str:
    """The table, means ± standard errors."""
    heads = [f"at {budget:,} {unit}" for unit, budget in budgets.items()]
    lines = [
        "| config | measure | seeds | " + " | ".join(heads) + " |",
        "|---|---|---|---|---|---|",
    ]
    for (name, measure), by_unit in cells.items():
        seeds = len(next(iter(by_unit.values())).values)
        shown = " | ".join(map(str, by_unit.values()))
        lines.append(f"| `{name}` | `{measure}` | {seeds} | {shown} |")
    return "\n".join(lines) + "\n"


def write_table(runs: Sequence[Run], chosen: argparse.Namespace, console: Console) -> None:
    """Compares the finished ones of ``runs``; the others are named."""
    done = {(run.config, run.seed): read_metrics(run.workdir) for run in runs if run.finished}
    for run in runs:
        if not run.finished:
            console.print(f"not finished: {run.workdir}", markup=False, soft_wrap=True)
    if not done:
        return
    budgets, cells = compare(done, chosen.measures, chosen.window)
    text = markdown(budgets, cells)
    facts = {
        "budgets": budgets,
        "window": chosen.window,
        "values": [
            {"config": name, "measure": measure, "budget": unit, "by_seed": cell.values,
             "mean": cell.mean, "standard_error": cell.error}
            for (name, measure), by_unit in cells.items()
            for unit, cell in by_unit.items()
        ],
    }  # fmt: skip
    (chosen.workdir / "table.md").write_text(text, encoding="utf-8")
    (chosen.workdir / "table.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    console.print(text, markup=False, soft_wrap=True)


def sweep(chosen: argparse.Namespace, console: Console) -> int:
    """Runs what is left to run and writes the table; the number of runs that failed.

    Raises:
      ConfigError: a config is named twice, or the directory is of a sweep with other arguments.
    """
    runs = plan(chosen.configs, chosen.seeds, chosen.workdir)
    _same_arguments(chosen)
    failed = 0
    for number, run in enumerate(runs):
        if run.finished:
            continue
        console.rule(f"run {number + 1} of {len(runs)}: {run.config}, seed {run.seed}")
        status = run.train(chosen.arguments)
        failed += status != 0
        if status == 0 and not run.finished:
            break  # It was told to stop.
    write_table(runs, chosen, console)
    return failed


def _same_arguments(chosen: argparse.Namespace) -> None:
    """Configs and seeds may be added to a sweep; what every run is told may not change."""
    path = chosen.workdir / "arguments.json"
    chosen.workdir.mkdir(parents=True, exist_ok=True)
    if path.exists() and (before := json.loads(path.read_text("utf-8"))) != chosen.arguments:
        raise config.ConfigError(
            f"--workdir={chosen.workdir}: its runs were told {' '.join(before) or 'nothing more'}; "
            "give the same after --, or another --workdir"
        )
    path.write_text(json.dumps(chosen.arguments) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", required=True, type=str.split, help="separated by spaces")
    parser.add_argument("--seeds", type=int, default=3, help="of each config: 0, 1, …")
    parser.add_argument("--workdir", required=True, type=Path)
    parser.add_argument("--measures", type=str.split, default=["returns/plain"], help="by spaces")
    parser.add_argument("--window", type=int, default=4, help="rows a measure is averaged over")
    parser.add_argument("arguments", nargs="*", help="after --: settings for every run")
    console = Console()
    try:
        failed = sweep(parser.parse_args(), console)
    except config.ConfigError as error:
        console.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        sys.exit(1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
