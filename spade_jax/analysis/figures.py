"""The paper's figures out of run directories; what is not there is named in a figure's place."""

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from spade_jax.analysis import collapse, conduct, curriculum, disclosure, plots
from spade_jax.analysis.evaluations import (
    Estimate,
    Evaluation,
    Task,
    Variant,
    by_task,
    gain,
    of_run,
    over_seeds,
    score,
)
from spade_jax.config import Model
from spade_jax.models.config import ModelConfig
from spade_jax.models.published import CONFIGS
from spade_jax.models.transformer import abstract
from spade_jax.selfplay import manifest

SMOOTH = 8
"""Iterations over which the learnable share is averaged."""
BINS = 6
"""Parts of a run of which each has a disclosure rate."""
Line = dict[int, list[conduct.Conduct]]
"""Iteration -> how its checkpoint went about each of some instances."""
EVALUATE = "python -m spade_jax.evaluate --config=… --workdir=… --checkpoint=STEP --benchmarks=…"


class Missing(Exception):
    """What a figure needs and the runs do not have."""


def write(variants: Sequence[Variant], folder: Path) -> dict[str, str]:
    """Draws every figure as ``NAME.png``; name -> what is missing, '' where it could be drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = {}
    for name, draw in FIGURES.items():
        figure = Figure(layout="constrained")
        try:
            draw(figure, variants)
            missing[name] = ""
        except Missing as reason:
            missing[name] = str(reason)
            figure = Figure(figsize=(6.4, 2.0))
            text = f"{name.replace('_', ' ')}: not drawn\n{reason}"
            figure.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
        figure.savefig(folder / f"{name}.png", dpi=150)
    return missing


def trajectories(figure: Figure, variants: Sequence[Variant]) -> None:
    """Score of a benchmark by iteration of the checkpoint, a panel a benchmark."""
    tasks = {
        task: lines
        for task, lines in _checkpoints(variants).items()
        if any(len(line) > 1 for line in lines.values())
    }
    if not tasks:
        raise Missing(f"Two checkpoints of a run on the same benchmark: {EVALUATE}")
    for axes, (task, lines) in zip(_panels(figure, len(tasks)), tasks.items(), strict=True):
        plots.lines(axes, {name: _estimates(line) for name, line in lines.items()}, percent=True)
        axes.set(title=_title(task, tasks), xlabel="iteration", ylabel="score, %")


def learnable_share(figure: Figure, variants: Sequence[Variant]) -> None:
    """Share of plain episodes on environments with a win rate in [0.2, 0.8] (the paper's 6)."""
    curves = {}
    for variant in variants:
        at = collections.defaultdict(list)
        for run in variant.runs:
            spent = curriculum.spent(manifest.read(run, "plays").to_pylist())
            smooth = curriculum.smoothed([each.learnable for each in spent.values()], SMOOTH)
            for iteration, value in zip(spent, smooth, strict=True):
                at[iteration].append(Estimate(value, value, value))
        if at:
            curves[variant.name] = {key: over_seeds(at[key]) for key in sorted(at)}
    if not curves:
        raise Missing("A run with plays in its manifest/")
    [axes] = _panels(figure, 1)
    plots.lines(axes, curves, percent=True)
    label = f"learnable share of plain episodes, %\n(mean of {SMOOTH} iterations)"
    axes.set(xlabel="iteration", ylabel=label, ylim=(0, 100))


def ablations(figure: Figure, variants: Sequence[Variant]) -> None:
    """Score of each variant's last checkpoint, a panel a benchmark."""
    last = {
        task: {name: _estimates(line)[max(line)] for name, line in lines.items()}
        for task, lines in _checkpoints(variants, last=True).items()
        if len(lines) > 1
    }
    if not last:
        raise Missing(f"Two variants scored on the same benchmark: {EVALUATE}")
    for axes, (task, bars) in zip(_panels(figure, len(last)), last.items(), strict=True):
        plots.bars(axes, bars)
        axes.set(title=_title(task, last), xlabel="score, %")


def gain_by_size(figure: Figure, variants: Sequence[Variant]) -> None:
    """What the score has gained since the run began, by the number of parameters."""
    tasks: dict[Task, dict[str, tuple[int, Estimate]]] = collections.defaultdict(dict)
    for variant in variants:
        gains = collections.defaultdict(list)
        for run in variant.runs:
            for task, line in by_task(of_run(run)).items():
                if line[0].iteration == 0 and len(line) > 1:
                    gains[task].append(gain(line[0], line[-1]))
        size = parameters(variant.runs[0])
        for task, found in gains.items():
            if size is not None:
                tasks[task][variant.name] = (size, over_seeds(found))
    tasks = {
        task: points
        for task, points in tasks.items()
        if len({size for size, _ in points.values()}) > 1
    }
    if not tasks:
        raise Missing(
            "Runs of two model sizes, of each the policy it began with (--checkpoint=initial) and "
            f"a later checkpoint scored on the same benchmark: {EVALUATE}"
        )
    for axes, (task, points) in zip(_panels(figure, len(tasks)), tasks.items(), strict=True):
        plots.points(axes, points)
        axes.set(title=_title(task, tasks), xlabel="parameters", ylabel="gain, percentage points")


def disclosure_and_collapse(figure: Figure, variants: Sequence[Variant]) -> None:
    """How often environments give their rule away, and whether they are written again and again."""
    written = {variant.name: _environments(variant.runs[0]) for variant in variants}
    written = {name: rows for name, rows in written.items() if rows}
    if not written:
        raise Missing("A run that has written and played environments")
    rates = {}
    for name, rows in written.items():
        width = -(-(rows[-1]["written"] + 1) // BINS)
        bins = collections.defaultdict(list)
        for row in rows:
            if row["observation"] is not None:
                bins[row["written"] // width].append((row["observation"], row["source"]))
        parts = {at: disclosure.rate(pairs) for at, pairs in bins.items()}
        rates[name] = {
            (at + 0.5) * width - 0.5: Estimate(part.disclosing / part.asked, part.low, part.high)
            for at, part in parts.items()
        }
    above, below = _panels(figure, 2)
    plots.lines(above, rates, percent=True)
    above.set(xlabel="iteration of writing", ylabel="disclose a formula, %", ylim=(-2, 102))
    found = {name: collapse.find([row["source"] for row in rows]) for name, rows in written.items()}
    plots.strips(below, {name: (each.clusters, each.alarm) for name, each in found.items()})
    below.set(xlabel="environment, in order of writing; a colour a kind")


def same_instances(figure: Figure, variants: Sequence[Variant]) -> None:
    """The same instances by several checkpoints of a run: what is said before the answer."""
    panels: dict[tuple[str, Task], Line] = {}
    for variant in variants:
        for task, group in by_task(of_run(variant.runs[0])).items():
            seen = {
                each.iteration: [conduct.of(outcome.record) for outcome in each.outcomes.values()]
                for each in group
            }
            line = _spoken(seen)
            if len(line) > 1 and next(iter(line.values())):
                panels[variant.name, task] = line
    if not panels:
        raise Missing(f"Two checkpoints of a run on the same items of a dialogue: {EVALUATE}")
    labels = ("characters of a reply", "unreadable replies, share", "probes before the answer")
    grid = figure.subplots(len(panels), 3, squeeze=False)
    figure.set_size_inches(10, 3 * len(panels))
    for row, ((name, task), line) in zip(grid, panels.items(), strict=True):
        for index, (axes, label) in enumerate(zip(row, labels, strict=True)):
            values = {
                at: [dataclasses.astuple(one)[index] for one in found] for at, found in line.items()
            }
            plots.instances(axes, values)
            axes.set(xlabel="iteration", ylabel=label)
        row[0].set_title(f"{name}: {task[0]}, {len(next(iter(line.values())))} items", loc="left")


FIGURES: dict[str, Callable[[Figure, Sequence[Variant]], None]] = {
    draw.__name__: draw
    for draw in (
        trajectories,
        learnable_share,
        ablations,
        gain_by_size,
        disclosure_and_collapse,
        same_instances,
    )
}


def parameters(workdir: Path) -> int | None:
    """Parameters of a run's policy, experts included; None where the run does not say."""
    model = json.loads((workdir / "config.json").read_text(encoding="utf-8"))["model"]
    taught = workdir / "initial" / "config.json"
    if taught.exists():
        values = json.loads(taught.read_text(encoding="utf-8"))
    else:
        values = CONFIGS.get(model["source"]) or model["architecture"]
    if "vocab_size" not in values:
        return None
    return sum(leaf.size for leaf in _leaves(ModelConfig.from_hf(values)))


def _leaves(config: ModelConfig) -> list[Any]:
    import jax

    return jax.tree.leaves(abstract(config, Model()))


def _checkpoints(
    variants: Sequence[Variant], last: bool = False
) -> dict[Task, dict[str, dict[int, list[Evaluation]]]]:
    """Task -> variant -> iteration -> the seeds' evaluations, all on the same items.

    ``last``: only each run's last checkpoint.
    """
    owners: list[tuple[str, Evaluation]] = []
    for variant in variants:
        for run in variant.runs:
            line = of_run(run)
            newest = {(each.benchmark, each.rules): each for each in line}
            owners += [(variant.name, each) for each in (newest.values() if last else line)]
    tasks: dict[Task, dict[str, dict[int, list[Evaluation]]]] = {}
    names = collections.defaultdict(list)
    for name, each in owners:
        names[each.benchmark, each.rules].append(name)
    for task, group in by_task([each for _, each in owners]).items():
        lines: dict[str, dict[int, list[Evaluation]]] = {}
        for name, each in zip(names[task], group, strict=True):
            lines.setdefault(name, {}).setdefault(each.iteration, []).append(each)
        tasks[task] = lines
    return tasks


def _estimates(line: dict[int, list[Evaluation]]) -> dict[float, Estimate]:
    return {at: over_seeds([score(each) for each in line[at]]) for at in sorted(line)}


def _environments(workdir: Path) -> list[dict[str, Any]]:
    """Sources in the order of writing, each with a first observation of its plays."""
    end = "_plain_000.json"
    paths = sorted(workdir.glob(f"episodes/*/*{end}"), reverse=True)
    episodes = {path.name.removesuffix(end): path for path in paths}
    rows = []
    for row in manifest.read(workdir, "environments").to_pylist():
        source = workdir / "environments" / row["name"] / "source.py"
        episode = episodes.get(row["name"])
        text = json.loads(episode.read_text("utf-8"))["first_observation"] if episode else None
        if source.exists():
            facts = {"written": row["written"], "observation": text}
            rows.append(facts | {"source": source.read_text(encoding="utf-8")})
    return rows


def _spoken(seen: Mapping[int, Sequence[conduct.Conduct | None]]) -> Line:
    """The instances alone in which every checkpoint said something."""
    whole = [all(found) for found in zip(*seen.values(), strict=True)]
    return {
        at: [one for one, said in zip(found, whole, strict=True) if one and said]
        for at, found in seen.items()
    }


def _panels(figure: Figure, count: int) -> list[Any]:
    figure.set_size_inches(6.4, 3.6 * count)
    return list(figure.subplots(count, 1, squeeze=False)[:, 0])


def _title(task: Task, tasks: Sequence[Task] | dict[Task, Any]) -> str:
    """The benchmark; where it was run by several rules, which of them."""
    same = [rules for name, rules in tasks if name == task[0]]
    return task[0] + (f", rules {same.index(task[1]) + 1}" if len(same) > 1 else "")
