"""The programs of the sampler, lowered from shapes: nothing is allocated, no device is needed.

They are the very functions that :class:`~spade_jax.sampling.native.sampler.NativeSampler` runs.
"""

import dataclasses
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from spade_jax import config as settings_
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract
from spade_jax.sampling.native import batches, replica
from spade_jax.sampling.native.forward import Forward
from spade_jax.sampling.native.memory import PAGE_SIZE, cache_pages
from spade_jax.sampling.native.scheduler import DecodePlan, PrefillPlan, Shapes


@dataclasses.dataclass(frozen=True)
class Programs:
    """The largest of each kind.

    Attributes:
      prefill: with as many cached tokens a row as the context has.
      decode: ``sampler.slots`` rows, as long as they go together.
      rows, lengths: of each, by its name: sequences, and cached tokens of each.
      cache_tokens: what the cache holds.
    """

    prefill: jax.stages.Lowered
    decode: jax.stages.Lowered
    rows: dict[str, int]
    lengths: dict[str, int]
    cache_tokens: int

    @classmethod
    def lower(cls, config: ModelConfig, settings: settings_.Config, mesh: Mesh) -> "Programs":
        """For a mesh of :func:`replica.make_mesh`, of live or described devices.

        Raises:
          ModelError: the model does not divide over the mesh.
        """
        sampler = settings.sampler
        graph, params = nnx.split(abstract(config, settings.model))
        forward = Forward.of(graph, params, PAGE_SIZE, sampler.replay_experts)
        pages = cache_pages(sampler, forward.token_bytes())
        shapes = Shapes.choose(
            sampler.slots, sampler.prefill_chunk, sampler.context, PAGE_SIZE, pages
        )
        weights = jax.eval_shape(forward.cut, params)
        weights = jax.tree.map(_on, weights, replica.placed(weights, mesh))
        pools = jax.tree.map(
            lambda x: _on(x, replica.pool_sharding(mesh, x.ndim)),
            jax.eval_shape(lambda: forward.pools(pages)),
        )
        last = shapes.pages[-1]
        long = max(shape for shape in shapes.prefills() if shape[2] == last)
        wide = max(shapes.decodes())  # most rows first
        turn = batches.prefill(PrefillPlan([], [], *long), pages)
        drawn = batches.decode(DecodePlan([], *wide), sampler.decode_steps, pages)
        with jax.set_mesh(mesh):
            prefill = Forward.prefill.lower(forward, weights, pools, turn)
            decode = Forward.decode.lower(forward, weights, pools, drawn)
        return cls(
            prefill,
            decode,
            {"prefill": long[0], "decode": wide[0]},
            {"prefill": last * PAGE_SIZE, "decode": wide[1] * PAGE_SIZE},
            pages * PAGE_SIZE,
        )


def _on(x: jax.ShapeDtypeStruct, where: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
