"""From returns and rewards to advantages: pure functions."""

import collections
import math
import statistics
from collections.abc import Hashable, Sequence

EPSILON = 1e-8


def standardise(returns: Sequence[float]) -> list[float]:
    """(R - mean) / (population deviation + 1e-8) within one environment's plain episodes.

    Returns that are all equal give exact zeros, whatever rounding does to their mean.
    """
    if not returns:
        return []
    if max(returns) == min(returns):
        return [0.0] * len(returns)
    mean = math.fsum(returns) / len(returns)
    deviation = statistics.pstdev(returns, mu=mean)
    return [(value - mean) / (deviation + EPSILON) for value in returns]


def centre(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Each reward minus the mean of its group (a designer batch is centred per skill)."""
    members = collections.defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        members[group].append(reward)
    means = {group: math.fsum(values) / len(values) for group, values in members.items()}
    return [reward - means[group] for reward, group in zip(rewards, groups, strict=True)]
