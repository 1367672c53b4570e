"""Rewards of both roles: pure functions of returns.

Formulas are those of arXiv 2608.19197 and of its published code; the constants are arguments with
no default, so that a recipe states them.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

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
    differences = _differences(plain, hinted)
    return statistics.fmean(differences) if differences else None


def regret_error(plain: Mapping[int, float], hinted: Mapping[int, float]) -> float | None:
    """Standard error of :func:`regret`, clustered by seed; None for fewer than two seeds.

    Plays of one seed are one observation: their mean difference.
    """
    differences = _differences(plain, hinted)
    if len(differences) < 2:
        return None
    return statistics.stdev(differences) / math.sqrt(len(differences))


def _differences(plain: Mapping[int, float], hinted: Mapping[int, float]) -> list[float]:
    return [hinted[seed] - plain[seed] for seed in sorted(plain.keys() & hinted.keys())]


def shrink(values: Sequence[float], errors: Sequence[float | None]) -> list[float]:
    """Each regret drawn towards the mean of all by its standard error (empirical Bayes).

    value → mean + (value - mean) · v / (v + error²), where v is what the variance of the values
    exceeds the mean squared error by. A value of unknown error stays as it is.
    """
    known = [(value, error) for value, error in zip(values, errors, strict=True)
             if error is not None]  # fmt: skip
    if len(known) < 2:
        return list(values)
    mean = statistics.fmean(value for value, _ in known)
    noise = statistics.fmean(error**2 for _, error in known)
    spread = max(0.0, statistics.variance(value for value, _ in known) - noise)

    def shrunken(value: float, error: float | None) -> float:
        if error is None or error == 0:
            return value
        return mean + (value - mean) * spread / (spread + error**2)

    return [shrunken(value, error) for value, error in zip(values, errors, strict=True)]


def regret_term(value: float, scale: float) -> float:
    """Regret floored at 0 and saturating at ``scale``: clip(value / scale, 0, 1)."""
    return max(0.0, min(1.0, value / scale))


def variance_bonus(returns: Sequence[float]) -> float:
    """exp(-(variance - 1/4)² / 0.02) in (0, 1]: 1 where half of the binary returns are wins."""
    return math.exp(-((statistics.pvariance(returns) - 0.25) ** 2) / 0.02)


def late_gain(returns: Sequence[Sequence[float]]) -> float:
    """Mean return of the later half of the iterations minus that of the earlier one, at least 0."""
    half = len(returns) // 2
    if half == 0:
        return 0.0
    means = [statistics.fmean(plays) for plays in returns]
    return max(0.0, statistics.fmean(means[half:]) - statistics.fmean(means[:half]))


def trend_gain(returns: Sequence[Sequence[float]]) -> float:
    """End minus start of the least-squares line through the iterations' mean returns, at least 0.

    An iteration of n plays weighs sqrt(n).
    """
    weights = [math.sqrt(len(plays)) for plays in returns]
    means = [statistics.fmean(plays) for plays in returns]
    if len(means) < 2:
        return 0.0
    total = math.fsum(weights)
    centre = math.fsum(w * x for x, w in enumerate(weights)) / total
    middle = math.fsum(w * y for w, y in zip(weights, means, strict=True)) / total
    rise = math.fsum(
        w * (x - centre) * (y - middle) for x, (w, y) in enumerate(zip(weights, means, strict=True))
    )
    run = math.fsum(w * (x - centre) ** 2 for x, w in enumerate(weights))
    return max(0.0, rise / run * (len(means) - 1))


@dataclasses.dataclass(frozen=True)
class Averages:
    """Exponential averages of a skill's mean plain return. Rates are weights of the new value."""

    fast: float
    slow: float

    def updated(self, value: float, fast_rate: float, slow_rate: float) -> "Averages":
        return Averages(
            fast_rate * value + (1 - fast_rate) * self.fast,
            slow_rate * value + (1 - slow_rate) * self.slow,
        )

    def potential(self, fast_rate: float, slow_rate: float) -> float:
        """Learning potential of the skill: |fast - slow| / (2 (fast_rate - slow_rate))."""
        return abs(self.fast - self.slow) / (2 * (fast_rate - slow_rate))


@dataclasses.dataclass(frozen=True)
class Window:
    """What an environment showed while it was in play.

    Attributes:
      returns: plain returns, one list for each iteration that has any, at least one.
      hinted: mean hinted return; None without a hint.
      regret: hinted minus plain return on the same seeds; None without a hint.
      error: standard error of ``regret``; None when unknown.
    """

    returns: Sequence[Sequence[float]]
    hinted: float | None = None
    regret: float | None = None
    error: float | None = None

    @property
    def plays(self) -> list[float]:
        return [value for iteration in self.returns for value in iteration]

    @property
    def win_rate(self) -> float:
        return math.fsum(self.plays) / len(self.plays)


def blend(win_rate: float, value: float | None, settings: config.Rewards) -> float:
    """Regret and difficulty anchor, in [0, regret_weight + anchor_weight].

    An environment whose regret is unknown (no hint) is scored by the anchor alone, at the weight
    of both: a failed hint says nothing about the environment.
    """
    anchor = plateau(win_rate, settings.anchor_low, settings.anchor_high, settings.anchor_ramp)
    if value is None:
        return (settings.regret_weight + settings.anchor_weight) * anchor
    term = regret_term(value, settings.regret_scale)
    return settings.regret_weight * term + settings.anchor_weight * anchor


def _hint_gain(window: Window) -> float | None:
    """Mean hinted return minus the win rate of the whole window, at least 0."""
    return None if window.hinted is None else max(0.0, window.hinted - window.win_rate)


_KINDS: dict[str, Callable[[Window, Averages, config.Rewards], float | None]] = {
    "blend": lambda window, _, settings: blend(window.win_rate, window.regret, settings),
    "solve_rate": lambda window, _, settings: plateau(
        window.win_rate, settings.anchor_low, settings.anchor_high, settings.anchor_ramp
    ),
    "regret": lambda window, *_: _hint_gain(window),
    "learning_potential": lambda window, averages, _: abs(window.win_rate - averages.slow),
    "late_gain": lambda window, *_: late_gain(window.returns),
    "trend_gain": lambda window, *_: trend_gain(window.returns),
}


def designer_reward(window: Window, averages: Averages, settings: config.Rewards) -> float | None:
    """The reward ``settings.kind`` names; None where it cannot be told (regret without a hint).

    Args:
      averages: of the environment's skill, with this window's returns already in them.
    """
    value = _KINDS[settings.kind](window, averages, settings)
    if value is None or not settings.variance_weight:
        return value
    return value + settings.variance_weight * variance_bonus(window.plays)


def designer_scale(n_agent: int, n_designer: int, k: int, cap: float) -> float:
    """Weight of a designer advantage beside the agent's: min(k n_agent / n_designer, cap)."""
    if n_designer == 0:
        return 1.0
    return min(k * n_agent / n_designer, cap)
