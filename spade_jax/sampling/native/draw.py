"""One token a row from its logits: float32 log-prob, truncation, Gumbel noise.

Truncation follows the usual order: top-k, then top-p on what is left and renormalised, then min-p
relative to the likeliest token. Each keeps the tokens at or above a threshold, found bit by bit
without sorting the vocabulary; tokens that tie with the last one kept are kept.
"""

import dataclasses
import hashlib
import typing

import jax
import jax.numpy as jnp
import numpy as np

Array = typing.Any  # a jax or numpy array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Draw:
    """How the rows of a batch are drawn.

    Attributes:
      key_bc: uint32 [b, 2], names the noise of each row, see :func:`noise_key`.
      temperature_b, top_p_b, min_p_b: float32. Temperature 0 is greedy.
      top_k_b: int32; 0 is off.
      noisy: bool scalar, whether any row is not greedy.
      truncated: bool scalar, whether any row truncates its distribution.
    """

    key_bc: Array
    temperature_b: Array
    top_p_b: Array
    min_p_b: Array
    top_k_b: Array
    noisy: Array
    truncated: Array


def noise_key(seed: int, uid: str) -> np.ndarray:
    """uint32 [2] from the run's seed and the request's uid."""
    digest = hashlib.blake2b(f"{seed}:{uid}".encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint32)


def draw(logit_bv: jax.Array, position_b: jax.Array, how: Draw) -> tuple[jax.Array, jax.Array]:
    """Samples one token a row.

    Args:
      logit_bv: float32.
      position_b: int32 place of the new token in its sequence; with ``key_bc`` it decides the
        noise, so neither the row nor the rest of the batch does.

    Returns:
      token_b int32, logp_b float32: log-softmax of logits / temperature (at 1 for greedy rows)
      over the whole vocabulary, whatever the truncation.
    """
    greedy_b = how.temperature_b == 0
    scaled_bv = logit_bv / jnp.where(greedy_b, 1.0, how.temperature_b)[:, None]
    total_b = jax.nn.logsumexp(scaled_bv, axis=-1)
    noise_bv = jax.lax.cond(
        how.noisy,
        lambda: _gumbel(how.key_bc, position_b, scaled_bv),
        lambda: jnp.zeros_like(scaled_bv),
    )
    score_bv = scaled_bv + jnp.where(greedy_b[:, None], 0.0, noise_bv)

    def truncated():
        logp_bv = scaled_bv - total_b[:, None]
        return jnp.where(logp_bv >= _threshold(logp_bv, how)[:, None], score_bv, -jnp.inf)

    score_bv = jax.lax.cond(how.truncated, truncated, lambda: score_bv)
    token_b = _first_largest(score_bv)
    return token_b, jnp.take_along_axis(scaled_bv, token_b[:, None], axis=-1)[:, 0] - total_b


def _first_largest(score_bv: jax.Array) -> jax.Array:
    """As argmax, in two reductions that XLA's CPU backend does about three times as fast."""
    last = score_bv.shape[1] - 1
    largest_b1 = score_bv.max(axis=-1, keepdims=True)
    return jnp.where(score_bv >= largest_b1, jnp.arange(last + 1), last).min(axis=-1)


def _gumbel(key_bc: Array, position_b: jax.Array, like_bv: jax.Array) -> jax.Array:
    """``jax.random.gumbel(fold_in(key, position))`` of each row, bit for bit."""
    key_b = _threefry((key_bc[:, 0], key_bc[:, 1]), 0, position_b)
    word_v = jnp.arange(like_bv.shape[1])
    high_bv, low_bv = _threefry((key_b[0][:, None], key_b[1][:, None]), 0, word_v)
    mantissa_bv = (high_bv ^ low_bv) >> 9 | jnp.uint32(0x3F800000)
    uniform_bv = jax.lax.bitcast_convert_type(mantissa_bv, jnp.float32) - 1
    least = jnp.finfo(jnp.float32).tiny
    return -jnp.log(-jnp.log(jnp.maximum(uniform_bv * (1 - least) + least, least)))


def _threefry(
    key: tuple[jax.Array, jax.Array], high: Array, low: Array
) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32-20 (Salmon et al. 2011) of a counter of two words.

    Unrolled: ``jax.random`` loops over the rounds on a CPU, where XLA then copies the state of the
    whole vocabulary in every round (4 to 7 times as long).
    """
    words = (*key, key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = jnp.uint32(high) + words[0], jnp.uint32(low) + words[1]
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = (y << distance | y >> (32 - distance)) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def _threshold(logp_bv: jax.Array, how: Draw) -> jax.Array:
    """Smallest log-prob that each row keeps."""
    vocabulary = logp_bv.shape[1]
    prob_bv = jnp.exp(logp_bv)
    k_b = jnp.where(how.top_k_b > 0, jnp.minimum(how.top_k_b, vocabulary), vocabulary)
    top_k_b = _largest(logp_bv, jnp.ones_like(logp_bv), k_b.astype(jnp.float32))
    kept_bv = jnp.where(logp_bv >= top_k_b[:, None], prob_bv, 0.0)
    mass_b = jnp.where(how.top_p_b < 1, how.top_p_b, jnp.inf) * kept_bv.sum(-1)
    top_p_b = _largest(logp_bv, kept_bv, mass_b)
    min_p_b = logp_bv.max(-1) + jnp.log(how.min_p_b)
    return jnp.maximum(jnp.maximum(top_k_b, top_p_b), min_p_b)


def _largest(x_bv: jax.Array, weight_bv: jax.Array, need_b: jax.Array) -> jax.Array:
    """Largest t with sum(weight where x >= t) >= need; -inf where no t has it.

    Floats are compared as unsigned integers in the same order, and t is built from the top bit
    down: 32 passes, exact.
    """
    bits_bv = jax.lax.bitcast_convert_type(x_bv, jnp.uint32)
    sign = jnp.uint32(1 << 31)
    order_bv = jnp.where(bits_bv >= sign, ~bits_bv, bits_bv | sign)

    def step(i, t_b):
        candidate_b = t_b | (sign >> i.astype(jnp.uint32))
        sum_b = jnp.where(order_bv >= candidate_b[:, None], weight_bv, 0.0).sum(-1)
        return jnp.where(sum_b >= need_b, candidate_b, t_b)

    order_b = jax.lax.fori_loop(0, 32, step, jnp.zeros(x_bv.shape[0], jnp.uint32))
    bits_b = jnp.where(order_b >= sign, order_b ^ sign, ~order_b)
    t_b = jax.lax.bitcast_convert_type(bits_b, jnp.float32)
    return jnp.where(order_b == 0, -jnp.inf, t_b)
