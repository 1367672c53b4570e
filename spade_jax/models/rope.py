"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), half-split layout, float32."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax.models.config import ModelConfig


def frequencies(config: ModelConfig) -> tuple[np.ndarray, float]:
    """Angular frequency of each pair and the factor on cos and sin.

    Scaling types: 'linear' (Chen et al. 2023, arXiv:2306.15595), 'llama3' (Llama 3.1) and 'yarn'
    (Peng et al. 2023, arXiv:2309.00071).

    Returns:
      float32 [head_dim / 2] radians a position, and the attention factor (1 but for yarn).
    """
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequency = config.rope_theta**-exponent
    scaling = dict(config.rope_scaling)
    kind, factor = scaling.get("rope_type", "default"), float(scaling.get("factor", 1.0))
    attention_factor = 1.0
    if kind == "linear":
        frequency = frequency / factor
    elif kind == "llama3":
        frequency = _llama3(frequency, scaling)
    elif kind == "yarn":
        low, high = _yarn_range(config, scaling)
        ramp = np.clip((np.arange(len(frequency)) - low) / max(high - low, 0.001), 0.0, 1.0)
        frequency = frequency * (1.0 - ramp) + frequency / factor * ramp
        attention_factor = scaling.get(
            "attention_factor", 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0
        )
    return frequency.astype(np.float32), float(attention_factor)


def apply(
    x_bthc: jax.Array, position_bt: jax.Array, frequency: np.ndarray, factor: float
) -> jax.Array:
    """Rotates each pair (c, c + head_dim/2) of ``x_bthc`` by position times frequency.

    Angles are float32: bfloat16 cannot tell position 257 from 256. The result has x's dtype.
    """
    angle_btc = position_bt[..., None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle_btc)[..., None, :] * factor, jnp.sin(angle_btc)[..., None, :] * factor
    first, second = jnp.split(x_bthc.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_bthc.dtype)


def _llama3(frequency: np.ndarray, scaling: dict) -> np.ndarray:
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = original * frequency / (2 * math.pi)  # full turns within the original context
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return frequency * ((1.0 - smooth) / factor + smooth)


def _yarn_range(config: ModelConfig, scaling: dict) -> tuple[float, float]:
    def pair(turns: float) -> float:
        """The (fractional) pair that makes this many turns within the original context."""
        context = scaling["original_max_position_embeddings"]
        return (
            config.head_dim
            * math.log(context / (turns * 2 * math.pi))
            / (2 * math.log(config.rope_theta))
        )

    low = math.floor(pair(scaling.get("beta_fast", 32)))
    high = math.ceil(pair(scaling.get("beta_slow", 1)))
    return max(low, 0), min(high, config.head_dim - 1)
