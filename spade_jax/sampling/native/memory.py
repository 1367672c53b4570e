"""What the native sampler holds on each of its devices, before there is one."""

import math
from typing import Any

import jax
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
    forward, params = _forward(model, settings)
    weights = jax.eval_shape(forward.cut, params)
    where = replica.placed(weights, replica.abstract_mesh(tensor, expert))
    held = sum(
        math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf, place in zip(jax.tree.leaves(weights), jax.tree.leaves(where), strict=True)
    )
    pages = cache_pages(settings.sampler, forward.token_bytes())
    cache = pages * PAGE_SIZE * forward.token_bytes(tensor)
    return {"weights": held, "cache": cache, "gathered": cache}


def token_bytes(model: ModelConfig, settings: settings_.Config, tensor: int = 1) -> int:
    """Bytes of cache that one position takes on each device of such a replica."""
    return _forward(model, settings)[0].token_bytes(tensor)


def _forward(model: ModelConfig, settings: settings_.Config) -> tuple[Forward, Any]:
    graph, params = nnx.split(abstract(model, settings.model))
    return Forward.of(graph, params, PAGE_SIZE, settings.sampler.replay_experts), params
