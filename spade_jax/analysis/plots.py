"""Pictures of a run, each drawn into matplotlib axes (the extra ``notebooks``)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spade_jax.analysis.curriculum import HIGH, LOW, Spent
from spade_jax.analysis.evaluations import Estimate
from spade_jax.environments.validation import Report

PLAIN, HINTED, QUIET = "#0072b2", "#d55e00", "#999999"
PALETTE = (PLAIN, HINTED, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("-", "--", ":")
MOST_LABELS = 12  # on an axis
STATUS = {"passed": "#009e73", "failed": "#d55e00", "unproven": "#e69f00"}


def returns(axes: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Mean return of both arms by iteration; hinted plays are in an epoch's first iteration."""
    for arm, colour in (("plain", PLAIN), ("hinted", HINTED)):
        rows = [row for row in metrics if f"returns/{arm}" in row]
        points = [(row["iteration"], row[f"returns/{arm}"]) for row in rows]
        axes.plot(*_columns(points), "o-", color=colour, label=arm)
    axes.set(ylabel="mean return", ylim=(-0.02, 1.02))
    _by_iteration(axes)
    axes.legend(loc="lower right")


def win_rates(axes: Axes, wins: Mapping[int, Sequence[int]]) -> None:
    """Environments by plain win rate, an iteration a column: dark where many are.

    ``wins`` as :func:`spade_jax.analysis.run.win_rate_bins` gives it.
    """
    iterations = sorted(wins)
    shares = np.array([np.divide(wins[at], max(sum(wins[at]), 1)) for at in iterations]).T
    edges = np.linspace(0, 1, len(shares) + 1)
    axes.pcolormesh(np.arange(len(iterations) + 1) - 0.5, edges, shares, cmap="Blues", vmin=0)
    every = -(-len(iterations) // MOST_LABELS) or 1
    axes.set_xticks(range(0, len(iterations), every), [str(at) for at in iterations[::every]])
    axes.axhspan(LOW, HIGH, fill=False, edgecolor=HINTED, linestyle="--")
    axes.set(xlabel="iteration", ylabel="win rate")


def arms(axes: Axes, environments: Sequence[Mapping[str, Any]]) -> None:
    """Plain against hinted return of each environment; regret is the length of its line.

    ``environments`` as :func:`spade_jax.analysis.run.read` gives them; those without hint are left
    out. The plain return is that of the seeds the hinted arm played: hinted return minus regret.
    """
    paired = [item for item in environments if item["regret"] is not None]
    paired.sort(key=lambda item: item["regret"])
    for place, item in enumerate(paired):
        hinted = np.mean([each["return"] for each in item["episodes"] if each["arm"] == "hinted"])
        plain = hinted - item["regret"]
        axes.plot([plain, hinted], [place, place], color=QUIET, zorder=1)
        axes.scatter([plain], [place], color=PLAIN, label=None if place else "plain")
        axes.scatter([hinted], [place], color=HINTED, marker="D", label=None if place else "hinted")
    axes.set_yticks(range(len(paired)), [item["name"] for item in paired])
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlabel="mean return")
    if paired:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # covers no point


def spent_on(axes: Axes, spent: Mapping[int, Spent]) -> None:
    """Share of plain episodes on learnable environments, and on those that train nothing."""
    learnable = [(at, shares.learnable) for at, shares in spent.items()]
    uniform = [(at, shares.uniform) for at, shares in spent.items()]
    axes.plot(*_columns(learnable), "o-", color=PALETTE[2], label="learnable")
    axes.plot(*_columns(uniform), "s--", color=QUIET, label="all returns equal")
    axes.set(ylabel="share of plain episodes", ylim=(-0.02, 1.02))
    _by_iteration(axes)
    axes.legend()


def checks(axes: Axes, reports: Mapping[str, Report]) -> None:
    """Outcome of each check (columns) for each program (rows); white was not asked."""
    names = [check.name for check in next(iter(reports.values())).checks]
    for row, report in enumerate(reports.values()):
        for column, check in enumerate(report.checks):
            if check.status in STATUS:
                axes.scatter(column, row, s=160, marker="s", color=STATUS[check.status])
        verdict = f"refused: {report.refused.name}" if report.refused else "accepted"
        axes.text(len(names) - 0.2, row, verdict, va="center", fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(reports)), list(reports))
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(len(reports) - 0.4, -0.6))
    for status, colour in STATUS.items():
        axes.scatter([], [], marker="s", color=colour, label=status)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATUS))


def similarities(axes: Axes, kernel_nn: np.ndarray) -> None:
    """The kernel in the order of writing: a designer that repeats itself makes dark squares."""
    image = axes.imshow(kernel_nn, cmap="Blues", vmin=0, vmax=1)
    axes.figure.colorbar(image, ax=axes, label="similarity")
    axes.set(xlabel="program", ylabel="program")


def places(axes: Axes, place_n2: np.ndarray, kinds: Sequence[str]) -> None:
    """Programs in the plane, a colour and a mark a kind."""
    for index, kind in enumerate(sorted(set(kinds))):
        chosen = [place for place, own in zip(place_n2, kinds, strict=True) if own == kind]
        colour, mark = PALETTE[index % len(PALETTE)], "osD^vP"[index % 6]
        axes.scatter(*np.transpose(chosen), color=colour, marker=mark, label=kind)
    axes.set(xticks=[], yticks=[])
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3)


def lines(axes: Axes, curves: Mapping[str, Mapping[Any, Estimate]], percent: bool = False) -> None:
    """A line a variant by iteration, with what belongs to its points as a band.

    Those for whom no colour is left are dashed, then dotted.
    """
    unit = 100 if percent else 1
    for index, (name, curve) in enumerate(curves.items()):
        colour = PALETTE[index % len(PALETTE)]
        style = DASHES[index // len(PALETTE) % len(DASHES)]
        places = sorted(curve)
        mean, low, high = (
            [unit * getattr(curve[at], end) for at in places] for end in ("mean", "low", "high")
        )
        axes.plot(places, mean, "o", linestyle=style, ms=3, color=colour, label=name)
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.legend(fontsize=7)


def bars(axes: Axes, estimates: Mapping[str, Estimate]) -> None:
    """A bar a variant in per cent, the best on top."""
    names = sorted(estimates, key=lambda name: estimates[name].mean)
    for place, name in enumerate(names):
        each = estimates[name]
        spread = [[100 * (each.mean - each.low)], [100 * (each.high - each.mean)]]
        axes.barh(place, 100 * each.mean, xerr=spread, color=PLAIN, capsize=3)
        axes.annotate(f" {100 * each.mean:.1f}", (0, place), va="center", color="white")
    axes.set_yticks(range(len(names)), names)


def points(axes: Axes, estimates: Mapping[str, tuple[int, Estimate]]) -> None:
    """A point a variant, by size on a scale of powers, in percentage points."""
    for size, each in estimates.values():
        spread = [[100 * (each.mean - each.low)], [100 * (each.high - each.mean)]]
        axes.errorbar([size], [100 * each.mean], yerr=spread, fmt="o", color=PLAIN, capsize=3)
    for name, (size, each) in estimates.items():
        axes.annotate(name, (size, 100 * each.mean), (5, 5), textcoords="offset points", fontsize=7)
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_xscale("log")


def strips(axes: Axes, found: Mapping[str, tuple[Sequence[int], bool]]) -> None:
    """Clusters of programs in the order of writing, a row a variant; an alarm is told."""
    for row, (clusters, _) in enumerate(found.values()):
        shades = [PALETTE[cluster % len(PALETTE)] for cluster in clusters]
        axes.bar(range(len(clusters)), 0.8, 1.0, row - 0.4, color=shades)
    labels = [
        f"{name}\nkinds: {len(set(clusters))}{', collapsed' if alarm else ''}"
        for name, (clusters, alarm) in found.items()
    ]
    axes.set_yticks(range(len(found)), labels, fontsize=7)
    axes.set(ylim=(len(found) - 0.5, -0.5))


def instances(axes: Axes, values: Mapping[int, Sequence[float]]) -> None:
    """A thin line an instance, their mean a thick one; ``values`` by iteration."""
    places = sorted(values)
    for one in zip(*(values[at] for at in places), strict=True):
        axes.plot(places, one, color=QUIET, linewidth=0.5, alpha=0.5)
    axes.plot(places, [np.mean(values[at]) for at in places], "o-", color=PLAIN, linewidth=2)


def _by_iteration(axes: Axes) -> None:
    """Iterations have no halves."""
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _columns(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [list(column) for column in zip(*points, strict=True)] or [[], []]
