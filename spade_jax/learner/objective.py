"""From parameters and a micro-batch to a loss: model, head and objective in one function."""

import dataclasses
from typing import Any

import jax
from flax import nnx

from spade_jax.learner import loss
from spade_jax.learner.logprobs import Shards, target_logp
from spade_jax.learner.packing import Batch


@dataclasses.dataclass(frozen=True)
class Supervised:
    """Loss of one micro-batch as a function of parameters; equal ones share compiled code.

    ``graph`` is the model's static half; ``shards`` the blocks of arrays that devices hold.
    """

    graph: Any
    shards: Shards

    def __call__(
        self, params: Any, reference: Any, batch: Batch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp_bt, _ = self.logp(params, batch)
        value = loss.supervised_loss(logp_bt, batch)
        return value, {"loss": value}

    def logp(self, params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Log-probs and entropies of the weighted predictions, float32 [b, t]."""
        model = nnx.merge(self.graph, params)
        h_btd = model.hidden(batch.token_bt, batch.position_bt, batch.segment_bt, batch.expert_btlk)
        w_vd = model.head().astype(h_btd.dtype)
        needed_bt = batch.loss_weight_bt > 0
        return target_logp(
            h_btd, w_vd, batch.target_bt, batch.temperature_bt, needed_bt, self.shards
        )


@dataclasses.dataclass(frozen=True)
class Policy(Supervised):
    """The policy objective. Outputs are also, per token, ``logp`` and ``entropy``, ``kl`` if there
    is a reference, and ``clipped`` if the batch has old log-probs."""

    loss: loss.PolicyLoss

    def __call__(
        self, params: Any, reference: Any, batch: Batch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp_bt, entropy_bt = self.logp(params, batch)
        output = {"logp": logp_bt, "entropy": entropy_bt}
        reference_logp_bt = None
        if reference is not None:
            own_choice = batch._replace(expert_btlk=None)  # it is another model
            reference_logp_bt, _ = self.logp(reference, own_choice)
            output["kl"] = loss.k3(logp_bt, reference_logp_bt)
        old_logp_bt = batch.old_logp_bt
        if old_logp_bt is None:
            old_logp_bt = jax.lax.stop_gradient(logp_bt)
        else:
            output["clipped"] = self.loss.clipped(logp_bt, old_logp_bt, batch)
        value = self.loss(logp_bt, old_logp_bt, entropy_bt, reference_logp_bt, batch)
        return value, output | {"loss": value}
