"""What the native sampler holds on its device, before there is one."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract


def sampler_bytes(model: ModelConfig, settings: settings_.Config) -> dict[str, int]:
    """Bytes by kind on the one device that samples.

    Returns:
      ``weights``: the copy in decoding form; ``cache``: keys and values, which stay between calls;
      ``gathered``: at most what a call takes beside them.
    """
    params = jax.tree.leaves(nnx.state(abstract(model, settings.model)))
    weights = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in params)
    width = jnp.dtype(settings.model.compute_dtype).itemsize
    token = 2 * model.layers * model.kv_heads * model.head_dim * width
    sampler = settings.sampler
    cache = min(sampler.cache_mb * 2**20, 2 * sampler.slots * sampler.context * token)
    return {"weights": weights, "cache": cache, "gathered": cache}
