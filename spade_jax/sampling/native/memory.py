"""What the native sampler holds on each of its devices, before there is one."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract
from spade_jax.sampling.native import replica
from spade_jax.sampling.native.forward import Forward

PAGE_SIZE = 16  # tokens


def cache_pages(settings: settings_.Sampler, token_bytes: int) -> int:
    """Pages of the cache: what ``cache_mb`` holds, and never more than two contexts a slot."""
    most = 2 * settings.slots * -(-settings.context // PAGE_SIZE)
    return min(settings.cache_mb * 2**20 // (PAGE_SIZE * token_bytes), most)


def sampler_bytes(
    model: ModelConfig, settings: settings_.Config, tensor: int = 1, expert: int = 1
) -> dict[str, int]:
    """Bytes by kind on each device of a replica of ``tensor`` x ``expert`` devices.

    Returns:
      ``weights``: the copy in decoding form; ``cache``: keys and values, which stay between calls;
      ``gathered``: at most what a call takes beside them.
    """
    graph, params = nnx.split(abstract(model, settings.model))
    forward = Forward.of(graph, params, PAGE_SIZE)
    weights = jax.eval_shape(forward.cut, params)
    over = replica.abstract_mesh(tensor, expert)
    held = 0
    for leaf, where in zip(
        *map(jax.tree.leaves, (weights, replica.placed(weights, over))), strict=True
    ):
        held += math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    token = token_bytes(model, settings.model)
    cache = cache_pages(settings.sampler, token) * PAGE_SIZE * token // tensor
    return {"weights": held, "cache": cache, "gathered": cache}


def token_bytes(model: ModelConfig, settings: settings_.Model) -> int:
    """Bytes of cache that one position takes on all devices."""
    width = jnp.dtype(settings.compute_dtype).itemsize
    return 2 * model.layers * model.kv_heads * model.head_dim * width
