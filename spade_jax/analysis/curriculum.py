"""What the agent's episodes were spent on: environments to learn from, or lost and won causes."""

import collections
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LOW, HIGH = 0.2, 0.8
"""Win rates between which an environment is learnable (the paper's figure 6)."""


@dataclasses.dataclass(frozen=True)
class Spent:
    """Shares of an iteration's plain episodes, by the plain win rate of their environment.

    Attributes:
      learnable: in [``LOW``, ``HIGH``].
      uniform: all returns of the environment are equal, so that its episodes train nothing.
      episodes: their number.
    """

    learnable: float
    uniform: float
    episodes: int


def spent(plays: Iterable[Mapping[str, Any]]) -> dict[int, Spent]:
    """Iteration -> what its plain episodes were spent on.

    ``plays`` are rows of the manifest's table: ``sha``, ``iteration``, ``arm`` and ``return``. The
    win rate is the mean plain return of the iteration; dropped episodes (no return) do not count.
    """
    returns: dict[int, dict[str, list[float]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for play in plays:
        if play["arm"] == "plain" and play["return"] is not None:
            returns[play["iteration"]][play["sha"]].append(play["return"])
    return {iteration: _shares(list(returns[iteration].values())) for iteration in sorted(returns)}


def _shares(groups: Sequence[Sequence[float]]) -> Spent:
    total = sum(map(len, groups))
    learnable = sum(len(group) for group in groups if LOW <= statistics.fmean(group) <= HIGH)
    uniform = sum(len(group) for group in groups if min(group) == max(group))
    return Spent(learnable / total, uniform / total, total)


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Mean of each value and the ``width`` − 1 before it, of fewer at the beginning."""
    return [
        statistics.fmean(values[max(0, end - width) : end]) for end in range(1, len(values) + 1)
    ]
