"""Objectives: pure functions of log-probs and batch. Formulas and sources: docs/learner.md.

Every objective is a sum over predictions of loss weight times a token's loss, so that the sum
over micro-batches is the loss of the whole batch. Places without loss weight hold zeros, from
``pack`` and from ``target_logp``: nothing there can turn into NaN.
"""

import dataclasses

import jax
import jax.numpy as jnp

from spade_jax import config
from spade_jax.learner.packing import Batch


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """Clipped policy gradient with truncated importance weights; coefficients as in config."""

    clip_low: float
    clip_high: float
    importance_cap: float
    kl_coefficient: float
    entropy_coefficient: float

    @classmethod
    def of(cls, settings: config.Learner) -> "PolicyLoss":
        """With the coefficients of the learner's settings."""
        return cls(
            **{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)}
        )

    def __call__(
        self,
        logp_bt: jax.Array,
        old_logp_bt: jax.Array,
        entropy_bt: jax.Array,
        reference_logp_bt: jax.Array | None,
        batch: Batch,
    ) -> jax.Array:
        """Scalar, to be minimised.

        ``old_logp_bt`` is the policy at the start of the iteration under the learner's numerics.
        With one step an iteration it is ``stop_gradient(logp_bt)``: the clip does nothing, and the
        importance weight is that of the current policy.
        ``reference_logp_bt`` is None if there is no KL term.
        """
        advantage_bt = batch.advantage_bt
        ratio_bt = jnp.exp(logp_bt - old_logp_bt)
        clipped_bt = jnp.clip(ratio_bt, 1 - self.clip_low, 1 + self.clip_high)
        surrogate_bt = jnp.minimum(ratio_bt * advantage_bt, clipped_bt * advantage_bt)
        weight_bt = importance_weight(old_logp_bt, batch.sampler_logp_bt, self.importance_cap)
        loss_bt = -weight_bt * surrogate_bt - self.entropy_coefficient * entropy_bt
        if reference_logp_bt is not None:
            loss_bt += self.kl_coefficient * k3(logp_bt, reference_logp_bt)
        return jnp.sum(batch.loss_weight_bt * loss_bt)

    def clipped(self, logp_bt: jax.Array, old_logp_bt: jax.Array, batch: Batch) -> jax.Array:
        """1 where the clip takes away the gradient, else 0; float32."""
        ratio_bt = jnp.exp(logp_bt - old_logp_bt)
        high_bt = (ratio_bt > 1 + self.clip_high) & (batch.advantage_bt > 0)
        low_bt = (ratio_bt < 1 - self.clip_low) & (batch.advantage_bt < 0)
        return (high_bt | low_bt).astype(jnp.float32)


def supervised_loss(logp_bt: jax.Array, batch: Batch) -> jax.Array:
    """Mean over trajectories of their mean negative log-prob per trained token; scalar, nats."""
    return -jnp.sum(batch.loss_weight_bt * logp_bt)


def importance_weight(logp_bt: jax.Array, sampler_logp_bt: jax.Array, cap: float) -> jax.Array:
    """Token-level truncated importance weight min(exp(logp - sampler_logp), cap)."""
    return jnp.minimum(jnp.exp(logp_bt - sampler_logp_bt), cap)


def k3(logp_bt: jax.Array, reference_logp_bt: jax.Array) -> jax.Array:
    """Estimate exp(-d) - 1 + d of KL(policy || reference), d = logp - reference_logp; at most 10.

    d is clipped as well: the gradient of a clipped infinity would be NaN.
    """
    d_bt = jnp.clip(logp_bt - reference_logp_bt, -20.0, 20.0)
    return jnp.minimum(jnp.exp(-d_bt) - 1 + d_bt, 10.0)
