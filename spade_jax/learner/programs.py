"""The programs of a training step, lowered from shapes: nothing is allocated, no device is needed.

They are the very functions that :class:`~spade_jax.learner.step.Learner` runs.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spade_jax import config as settings_
from spade_jax.learner import optimizer, step
from spade_jax.learner.loss import PolicyLoss
from spade_jax.learner.objective import Policy
from spade_jax.learner.packing import Batch
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract


@dataclasses.dataclass(frozen=True)
class Programs:
    """Lowered steps, and what stays in device memory beside each step's own arguments.

    Attributes:
      accumulate: gradient of one micro-batch of ``rows`` x ``row_length``, added to the sum.
      add_group: norm, and clip, of a group's gradient.
      apply: the optimizer step.
      resident: bytes a device holds, by name of the step, that are not its arguments.
    """

    accumulate: jax.stages.Lowered
    add_group: jax.stages.Lowered
    apply: jax.stages.Lowered
    resident: dict[str, int]

    @classmethod
    def lower(cls, config: ModelConfig, settings: settings_.Config, mesh: Mesh) -> "Programs":
        """For the mesh of a live or a described topology.

        Raises:
          ModelError, ValueError: the model or the rows do not divide over the mesh.
        """
        learner = settings.learner
        graph, params = nnx.split(abstract(config, settings.model, learner.remat))
        sharding.shardings(params, mesh)  # checks
        params = _placed(params, mesh)
        layout, shards = step._spread(mesh, learner)
        grads = jax.tree.map(lambda p: _like(p, jnp.dtype(jnp.float32)), params)
        moments = jax.tree.map(lambda p: _like(p, jnp.dtype(learner.moments_dtype)), params)
        state = jax.eval_shape(optimizer.adamw(learner).init, moments)
        state = _placed(state, mesh, "pinned_host" if learner.offload else "device")
        reference = None
        if learner.kl_coefficient:
            reference = _placed(params, mesh, "pinned_host" if learner.offload else "device")
        objective = Policy(graph, shards, PolicyLoss.of(learner))
        batch = _batch(learner, layout)
        if settings.sampler.replay_experts and config.experts:
            each = (*batch.token_bt.shape, config.layers, config.experts_per_token)
            batch = batch._replace(expert_btlk=jax.ShapeDtypeStruct(each, "i2", sharding=layout))
        rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
        with jax.set_mesh(mesh):
            accumulate = step._accumulate.lower(objective, learner, params, reference, grads, batch)
            add_group = step._add_group.lower(learner, grads, grads)
            apply = step._apply.lower(learner, params, state, grads, rate)
        on_device = 0 if learner.offload else _bytes(state)
        held = {
            "accumulate": _bytes(grads) + on_device,  # the sum over groups, and the moments
            "add_group": _bytes(params) + on_device,
            "apply": 0,
        }
        if reference is not None and not learner.offload:
            held["add_group"] += _bytes(reference)
            held["apply"] += _bytes(reference)
        return cls(accumulate, add_group, apply, held)


def _placed(tree: Any, mesh: Mesh, memory: str = "device") -> Any:
    """Shapes with the layout of the parameters they belong to; scalars are everywhere."""

    def place(leaf: Any) -> Any:
        variable = isinstance(leaf, nnx.Variable)
        axes = leaf.get_metadata("axes") if variable else [None] * leaf.ndim
        value = leaf.get_value() if variable else leaf
        where = NamedSharding(mesh, sharding.spec(*axes), memory_kind=memory)
        struct = jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=where)
        return leaf.replace(struct) if variable else struct

    return jax.tree.map(place, tree, is_leaf=lambda x: isinstance(x, nnx.Variable))


def _like(leaf: jax.ShapeDtypeStruct, dtype: jnp.dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=leaf.sharding)


def _batch(learner: settings_.Learner, layout: Any) -> Batch:
    shape = (learner.rows, learner.row_length)
    integers, floats = (jax.ShapeDtypeStruct(shape, t, sharding=layout) for t in ("i4", "f4"))
    batch = Batch(*[integers] * 4, *[floats] * 4)
    return batch._replace(old_logp_bt=floats) if learner.steps > 1 else batch


def _bytes(tree: Any) -> int:
    """On one device."""
    return sum(
        leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))
        for leaf in jax.tree.leaves(tree)
    )
