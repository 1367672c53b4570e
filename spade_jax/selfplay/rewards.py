"""Rewards of both roles: pure functions of returns.

Formulas are those of arXiv 2608.19197; the constants are arguments with no default, so that a
recipe states them.
"""

import statistics
from collections.abc import Mapping, Sequence

from spade_jax import config


def episode_return(rewards: Sequence[float], terminated: bool) -> float:
    """Last reward clamped to [-1, 1] if the environment ended the episode itself, else 0."""
    if not terminated or not rewards:
        return 0.0
    return max(-1.0, min(1.0, rewards[-1]))


def plateau(win_rate: float, low: float, high: float, ramp: float) -> float:
    """Difficulty anchor in [0, 1]: 1 on [low, high], linear to 0 over ``ramp`` on either side."""
    distance = max(low - win_rate, win_rate - high, 0.0)
    return max(0.0, 1.0 - distance / ramp)


def regret(plain: Mapping[int, float], hinted: Mapping[int, float]) -> float | None:
    """Mean over seeds of hinted minus plain mean return; None when no seed was played in both.

    Pairing by seed removes the spread between instances from the difference.
    """
    seeds = plain.keys() & hinted.keys()
    if not seeds:
        return None
    return statistics.fmean(hinted[seed] - plain[seed] for seed in sorted(seeds))


def regret_term(value: float, scale: float) -> float:
    """Regret floored at 0 and saturating at ``scale``: clip(value / scale, 0, 1)."""
    return max(0.0, min(1.0, value / scale))


def designer_reward(win_rate: float, value: float | None, settings: config.Rewards) -> float:
    """Blend of regret and difficulty anchor, in [0, regret_weight + anchor_weight].

    An environment whose regret is unknown (no hint) is scored by the anchor alone, at the weight
    of both: a failed hint says nothing about the environment.
    """
    anchor = plateau(win_rate, settings.anchor_low, settings.anchor_high, settings.anchor_ramp)
    if value is None:
        return (settings.regret_weight + settings.anchor_weight) * anchor
    term = regret_term(value, settings.regret_scale)
    return settings.regret_weight * term + settings.anchor_weight * anchor


def designer_scale(n_agent: int, n_designer: int, k: int, cap: float) -> float:
    """Weight of a designer advantage beside the agent's: min(k n_agent / n_designer, cap)."""
    if n_designer == 0:
        return 1.0
    return min(k * n_agent / n_designer, cap)
