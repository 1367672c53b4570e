"""What evaluations and seeds say of a variant: runs that differ in nothing but the seed."""

import collections
import dataclasses
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from spade_jax.analysis.run import NoRunError
from spade_jax.benchmarks import scores
from spade_jax.benchmarks.interface import WON, Item, Outcome


@dataclasses.dataclass(frozen=True)
class Variant:
    """A config, and the directories of its runs, one a seed."""

    name: str
    runs: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A checkpoint's outcomes on a benchmark, by item.

    Attributes:
      rules: the protocol but for the policy: what must be equal to compare.
      iteration: of the checkpoint; 0 is the policy with which the run began.
    """

    benchmark: str
    rules: str
    iteration: int
    outcomes: Mapping[str, Outcome]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean, and the ends of what belongs to it: see who gives it."""

    mean: float
    low: float
    high: float


Task = tuple[str, str]
"""A benchmark and its rules."""


def variants(workdirs: Sequence[Path]) -> list[Variant]:
    """Runs by variant: a directory is a run, or that of a sweep (``CONFIG/seed_N``).

    Raises:
      NoRunError: it is neither.
    """
    found: dict[str, list[Path]] = {}
    for workdir in workdirs:
        runs = [workdir] if (workdir / "metrics.jsonl").exists() else _of_sweep(workdir)
        for run in runs:
            folder = run.resolve()
            seed = re.fullmatch(r"seed_\d+", folder.name)
            found.setdefault(folder.parent.name if seed else folder.name, []).append(run)
    return [Variant(name, tuple(runs)) for name, runs in found.items()]


def _of_sweep(workdir: Path) -> list[Path]:
    runs = sorted(path.parent for path in workdir.glob("*/seed_*/metrics.jsonl"))
    if not runs:
        raise NoRunError(
            f"{workdir} holds neither metrics.jsonl nor CONFIG/seed_N/metrics.jsonl: name the "
            "--workdir of a run or of a sweep"
        )
    return runs


def of_run(workdir: Path) -> list[Evaluation]:
    """Evaluations of the run's own checkpoints, by iteration."""
    found = []
    for path in sorted((workdir / "evaluation").glob("*/*/items.jsonl")):
        policy = re.fullmatch(r"initial|step-(\d+)", path.parts[-3])
        protocol = json.loads((path.parent / "protocol.json").read_text(encoding="utf-8"))
        rules = {key: value for key, value in protocol.items() if key != "policy"}
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        outcomes = [Outcome(**json.loads(line)) for line in lines if line.endswith("\n")]
        if policy and outcomes:
            found.append(
                Evaluation(
                    protocol["benchmark"],
                    json.dumps(rules, sort_keys=True),
                    int(policy[1] or 0),
                    {outcome.item: outcome for outcome in outcomes},
                )
            )
    return sorted(found, key=lambda each: each.iteration)


def by_task(evaluations: Sequence[Evaluation]) -> dict[Task, list[Evaluation]]:
    """Those that can be compared, with the items alone that all of them tried; at least one."""
    tasks: dict[Task, list[Evaluation]] = {}
    for each in evaluations:
        tasks.setdefault((each.benchmark, each.rules), []).append(each)
    result = {}
    for task, group in tasks.items():
        common = sorted(set.intersection(*(set(each.outcomes) for each in group)))
        if common:
            result[task] = [
                dataclasses.replace(each, outcomes={item: each.outcomes[item] for item in common})
                for each in group
            ]
    return result


def score(evaluation: Evaluation) -> Estimate:
    """Mean over the columns of its items, with the 95 % interval of the choice of items."""
    outcomes = list(evaluation.outcomes.values())
    items = [Item(outcome.item, outcome.column, {}, _problem(outcome.item)) for outcome in outcomes]
    mean = scores.mean(scores.of_columns(items, outcomes))
    return Estimate(mean.mean, mean.low, mean.high)


def over_seeds(estimates: Sequence[Estimate]) -> Estimate:
    """Mean and one standard error of several seeds'; the one itself where there is but one."""
    if len(estimates) == 1:
        return estimates[0]
    means = [each.mean for each in estimates]
    middle, error = statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means))
    return Estimate(middle, middle - error, middle + error)


def gain(before: Evaluation, after: Evaluation) -> Estimate:
    """Mean difference of the shares won, ± 1.96 standard errors over problems."""
    differences = collections.defaultdict(list)
    for item, outcome in after.outcomes.items():
        won = [float(each.score >= WON) for each in (before.outcomes[item], outcome)]
        differences[_problem(item)].append(won[1] - won[0])
    means = [statistics.fmean(each) for each in differences.values()]
    middle = statistics.fmean(means)
    error = 1.96 * statistics.pstdev(means) / math.sqrt(len(means))
    return Estimate(middle, middle - error, middle + error)


def _problem(item: str) -> str:
    """Samples of one problem are named ``PROBLEM/SAMPLE``."""
    sample = re.fullmatch(r"(\d+)/\d+", item)
    return sample[1] if sample else item
