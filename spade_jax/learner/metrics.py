"""What an update reports, from the log-probs of every trained token of the whole batch.

Computed once, on the host, in float64, over all micro-batches together: exact quantiles, and no
mean of means.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from spade_jax.learner.packing import Batch


def policy_metrics(
    batches: Sequence[Sequence[Batch]],
    outputs: Sequence[Sequence[dict[str, np.ndarray]]],
    names: Sequence[str],
    cap: float,
) -> dict[str, float]:
    """Metrics over all groups and, with ``/<name>``, of each; 0 where there is no token.

    Args:
      batches: micro-batches of each group.
      outputs: for each of them ``logp``, ``entropy`` and perhaps ``kl`` and ``clipped``, float32
        [rows, length].
      names: of the groups.
      cap: of the importance weight.

    Returns:
      ``trained_tokens``; ``entropy`` in nats; ``kl`` (k3) if there is a reference;
      ``ratio_clipped``, the share that the clip left without gradient, if there are old log-probs;
      ``logp_gap/mean|max|p50|p99`` of abs(logp - sampler_logp) in nats; ``importance/mean``,
      ``clipped`` (share at the cap) and ``ess``, the effective sample size
      (sum w)^2 / (n sum w^2) of the truncated weights (Kish 1965), 1 if all are equal.
    """
    keys = {"logp", "entropy"}.union(*(output for group in outputs for output in group))
    groups = [_tokens(keys, *pair) for pair in zip(batches, outputs, strict=True)]
    everything = {key: np.concatenate([group[key] for group in groups]) for key in groups[0]}
    metrics = _summary(everything, cap, "")
    for name, group in zip(names, groups, strict=True):
        metrics |= _summary(group, cap, f"/{name}")
    return metrics


def _tokens(
    keys: Iterable[str], batches: Sequence[Batch], outputs: Sequence[dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """float64 arrays over the trained tokens of a group."""
    columns: dict[str, list[np.ndarray]] = {key: [] for key in (*keys, "sampler_logp")}
    for batch, output in zip(batches, outputs, strict=True):
        trained_bt = batch.loss_weight_bt > 0
        for key, value_bt in (output | {"sampler_logp": batch.sampler_logp_bt}).items():
            columns[key].append(value_bt[trained_bt].astype(np.float64))
    return {key: np.concatenate([np.zeros(0), *parts]) for key, parts in columns.items()}


def _summary(tokens: dict[str, np.ndarray], cap: float, suffix: str) -> dict[str, float]:
    difference = tokens["logp"] - tokens["sampler_logp"]
    gap, weight = np.abs(difference), np.exp(np.minimum(difference, np.log(cap)))
    count = len(gap)
    values = {
        f"trained_tokens{suffix}": float(count),
        f"entropy{suffix}": _mean(tokens["entropy"]),
        f"logp_gap{suffix}/mean": _mean(gap),
        f"logp_gap{suffix}/max": gap.max(initial=0.0),
        f"logp_gap{suffix}/p50": np.quantile(gap, 0.5) if count else 0.0,
        f"logp_gap{suffix}/p99": np.quantile(gap, 0.99) if count else 0.0,
        f"importance{suffix}/mean": _mean(weight),
        f"importance{suffix}/clipped": _mean(difference >= np.log(cap)),
        f"importance{suffix}/ess": weight.sum() ** 2 / (count * np.square(weight).sum())
        if count
        else 0.0,
    }
    for key, name in (("kl", "kl"), ("clipped", "ratio_clipped")):
        if key in tokens:
            values[f"{name}{suffix}"] = _mean(tokens[key])
    return {key: float(value) for key, value in values.items()}


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
