"""How much of the spread of returns is due to the instance that was played."""

import collections
import math
from collections.abc import Mapping, Sequence

Returns = Mapping[int, Sequence[float]]  # seed -> returns of its plays in one arm


def seed_share(environments: Sequence[Sequence[Returns]]) -> float | None:
    """Share of the variance of returns that is due to the seed (intraclass correlation).

    Analysis of variance with the seeds of an environment as classes and the arms' means taken out;
    squares and degrees of freedom are added up over the environments. Where the share is 0 the
    estimate scatters around it and can be negative.

    Args:
      environments: for each, the returns of each of its arms.

    Returns:
      (B - W) / (B + (m - 1) W), with B and W the mean squares between and within seeds and m the
      effective number of plays of a seed; None where no seed was played twice or nothing varies.
    """
    between = within = effective = 0.0
    between_df = within_df = 0
    for arms in environments:
        residuals = _residuals(arms)
        if len(residuals) < 2:
            continue
        sizes = [len(values) for values in residuals.values()]
        between_df += len(sizes) - 1
        within_df += sum(sizes) - len(sizes) - (len(arms) - 1)
        effective += sum(sizes) - math.fsum(size**2 for size in sizes) / sum(sizes)
        for values in residuals.values():
            mean = math.fsum(values) / len(values)
            between += len(values) * mean**2
            within += math.fsum((value - mean) ** 2 for value in values)
    if within_df <= 0:
        return None
    between, within, effective = between / between_df, within / within_df, effective / between_df
    total = between + (effective - 1) * within
    return (between - within) / total if total > 0 else None


def _residuals(arms: Sequence[Returns]) -> dict[int, list[float]]:
    """seed -> its returns minus the mean of their arm."""
    residuals: dict[int, list[float]] = collections.defaultdict(list)
    for returns in arms:
        values = [value for of_seed in returns.values() for value in of_seed]
        mean = math.fsum(values) / len(values)
        for seed, of_seed in returns.items():
            residuals[seed] += [value - mean for value in of_seed]
    return residuals
