"""Target log-prob and entropy fused with the output head, in chunks, both passes.

Outer loop: blocks of the vocabulary, whose part of the head is gathered, used and dropped. Inner
loop: chunks of predictions, whose logits are made, folded into four numbers each and dropped; the
backward pass makes them again. Predictions that nothing is learnt from are moved behind the
others, and the inner loop ends before them: they cost nothing. [B, T, V] never exists, and no
device ever holds a whole gradient of the head in float32.

Axes besides those of design: ``s`` block of predictions that one device holds, ``n`` prediction in
it, ``c`` prediction in a chunk, ``p`` part of the vocabulary that one device holds, ``j`` block in
it. Nothing crosses ``s`` or ``p`` inside the loops.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spade_jax.models import sharding

CHUNK = 512
"""Predictions whose logits exist at one time, per shard."""
BLOCK = 16384
"""Most words of a vocabulary block, per shard."""
_LOWEST = -1e30  # finite: 0 * (lowest - anything) must stay 0


class Shards(NamedTuple):
    """Into how many blocks the devices of a mesh split the arrays."""

    rows: int = 1
    length: int = 1
    vocabulary: int = 1


class _Inputs(NamedTuple):
    h_snd: jax.Array
    w_pjvd: jax.Array
    target_sn: Any
    temperature_sn: Any
    order_sn: Any
    place_sn: Any
    count_s: Any


def target_logp(
    h_btd: jax.Array,
    w_vd: jax.Array,
    target_bt: jax.Array,
    temperature_bt: jax.Array,
    needed_bt: jax.Array,
    shards: Shards = Shards(),  # noqa: B008  (immutable)
    chunk: int = CHUNK,
    block: int = BLOCK,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of each target, and entropy, of softmax(h w^T / temperature).

    Args:
      h_btd: hidden states after the final norm, any float dtype.
      w_vd: output head, same dtype; may be split over any axes.
      target_bt: int32 ids.
      temperature_bt: float32, above 0.
      needed_bt: bool; elsewhere the results are 0 and carry no gradient.
      shards: of the mesh; no prediction moves between devices.
      chunk: predictions a shard handles at a time.
      block: words a shard handles at a time, at most.

    Returns:
      logp_bt and entropy_bt, float32, in nats; differentiable once in h_btd and w_vd.
    """
    split = functools.partial(_split, shards=shards)
    needed_sn = split(needed_bt)
    n = needed_sn.shape[1]
    chunk = min(chunk, n)
    order_sn = jnp.argsort(~needed_sn, axis=1, stable=True)
    words = w_vd.shape[0] // shards.vocabulary
    inputs = _Inputs(
        split(h_btd),
        w_vd.reshape(shards.vocabulary, blocks(words, block), -1, w_vd.shape[1]),
        split(target_bt),
        split(temperature_bt),
        jnp.pad(order_sn, ((0, 0), (0, -n % chunk))),
        jnp.argsort(order_sn, axis=1),
        needed_sn.sum(axis=1),
    )
    logp_sn, entropy_sn = _fused(chunk, inputs)
    return _join(logp_sn, needed_bt.shape, shards), _join(entropy_sn, needed_bt.shape, shards)


def _split(x_bt: jax.Array, shards: Shards) -> jax.Array:
    """x_sn of x_bt (or x_snd of x_btd): a local reshape on every device."""
    b, t, *rest = x_bt.shape
    parts = x_bt.reshape(shards.rows, b // shards.rows, shards.length, t // shards.length, *rest)
    return parts.swapaxes(1, 2).reshape(shards.rows * shards.length, -1, *rest)


def _join(x_sn: jax.Array, shape: tuple[int, ...], shards: Shards) -> jax.Array:
    """Inverse of :func:`_split`."""
    b, t = shape
    parts = x_sn.reshape(shards.rows, shards.length, b // shards.rows, t // shards.length)
    return parts.swapaxes(1, 2).reshape(b, t)


def blocks(words: int, block: int) -> int:
    """Fewest equal blocks of at most ``block`` words; 1 if equal ones would be tiny."""
    for count in range(-(-words // block), 4 * -(-words // block) + 1):
        if words % count == 0:
            return count
    return 1


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(chunk: int, inputs: _Inputs) -> tuple[jax.Array, jax.Array]:
    return _forward(chunk, inputs)[0]


def _block(inputs: _Inputs, j: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Block j of the head, gathered over all but ``p``, and the word each of its rows is."""
    w_pvd = jax.lax.dynamic_index_in_dim(inputs.w_pjvd, j, axis=1, keepdims=False)
    w_pvd = sharding.constrain(w_pvd, "vocabulary", None, None)
    parts, blocks, words, _ = inputs.w_pjvd.shape
    first_p = (jnp.arange(parts) * blocks + j) * words
    return w_pvd, first_p[:, None] + jnp.arange(words)


def _chunk_logits(
    inputs: _Inputs, w_pvd: jax.Array, word_pv: jax.Array, i: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Hidden states, tempered logits, target mask and temperatures of chunk i, in order of need."""
    order_sc = jax.lax.dynamic_slice_in_dim(inputs.order_sn, i * chunk, chunk, axis=1)
    valid_sc = i * chunk + jnp.arange(chunk) < inputs.count_s[:, None]
    h_scd = jnp.take_along_axis(inputs.h_snd, order_sc[..., None], axis=1)
    h_scd = jnp.where(valid_sc[..., None], h_scd, 0)  # whatever padding holds must not spread
    temperature_sc = jnp.take_along_axis(inputs.temperature_sn, order_sc, axis=1)
    target_sc = jnp.take_along_axis(inputs.target_sn, order_sc, axis=1)
    # Not einsum: it would swap the operands, and every pass over the logits would be transposed.
    z_scpv = jax.lax.dot_general(
        h_scd, w_pvd, (((2,), (2,)), ((), ())), preferred_element_type=jnp.float32
    )
    z_pscv = z_scpv.transpose(2, 0, 1, 3)
    z_pscv = sharding.constrain(z_pscv, "vocabulary", "prediction", None, None)
    z_pscv = z_pscv / temperature_sc[..., None]
    return h_scd, z_pscv, target_sc[..., None] == word_pv[:, None, None], temperature_sc


def _forward(chunk: int, inputs: _Inputs):
    """Online softmax over the blocks (Milakov and Gimelshein 2018), of each part on its own."""
    parts, blocks = inputs.w_pjvd.shape[:2]
    chunks = -(-inputs.count_s.max() // chunk)

    def over_block(j, sums):
        w_pvd, word_pv = _block(inputs, j)

        def over_chunk(i, sums):
            _, z_pscv, is_target_pscv, _ = _chunk_logits(inputs, w_pvd, word_pv, i, chunk)
            largest, sum_e, sum_ez, target = (
                jax.lax.dynamic_slice_in_dim(x, i * chunk, chunk, axis=2) for x in sums
            )
            new = jnp.maximum(largest, z_pscv.max(axis=-1))
            sum_e, sum_ez = _shifted(largest, new, sum_e, sum_ez)
            z0_pscv = z_pscv - new[..., None]
            e_pscv = jnp.exp(z0_pscv)
            # Not the bare product: XLA's CPU backend takes it for a dot, 20 times slower.
            ez_pscv = jnp.where(e_pscv > 0, e_pscv * z0_pscv, 0)
            updated = (
                new,
                sum_e + e_pscv.sum(axis=-1),
                sum_ez + ez_pscv.sum(axis=-1),
                target + jnp.where(is_target_pscv, z_pscv, 0).sum(axis=-1),
            )
            return tuple(
                jax.lax.dynamic_update_slice_in_dim(x, value, i * chunk, axis=2)
                for x, value in zip(sums, updated, strict=True)
            )

        return jax.lax.fori_loop(0, chunks, over_chunk, sums)

    zeros = jnp.zeros((parts, *inputs.order_sn.shape), jnp.float32)
    zeros = sharding.constrain(zeros, "vocabulary", "prediction", None)
    sums = jax.lax.fori_loop(0, blocks, over_block, (zeros + _LOWEST, zeros, zeros, zeros))
    largest_psn, sum_e_psn, sum_ez_psn, target_psn = sums
    largest_sn = largest_psn.max(axis=0)
    sum_e_sn, sum_ez_sn = (
        x.sum(axis=0) for x in _shifted(largest_psn, largest_sn, sum_e_psn, sum_ez_psn)
    )
    log_sum_sn = jnp.log(sum_e_sn)
    logp_sn = target_psn.sum(axis=0) - largest_sn - log_sum_sn
    entropy_sn = log_sum_sn - sum_ez_sn / sum_e_sn
    needed_sn = inputs.place_sn < inputs.count_s[:, None]
    outputs = tuple(
        jnp.where(needed_sn, jnp.take_along_axis(x, inputs.place_sn, axis=1), 0)
        for x in (logp_sn, entropy_sn)
    )
    return outputs, (inputs, entropy_sn, largest_sn + log_sum_sn)


def _shifted(old: jax.Array, new: jax.Array, sum_e: jax.Array, sum_ez: jax.Array):
    """sum e^(z - new) and sum e^(z - new) (z - new) of those sums with ``old``."""
    scale = jnp.exp(old - new)
    return scale * sum_e, scale * (sum_ez + sum_e * (old - new))


def _backward(chunk: int, saved, cotangents):
    """With p = softmax(z): d logp / dz = onehot - p and d entropy / dz = -p (log p + entropy)."""
    inputs, entropy_sn, lse_sn = saved
    d_logp_sn, d_entropy_sn = (jnp.take_along_axis(x, inputs.order_sn, axis=1) for x in cotangents)
    parts, blocks, words, d = inputs.w_pjvd.shape
    dtype = inputs.h_snd.dtype
    chunks = -(-inputs.count_s.max() // chunk)

    def over_block(j, grads):
        w_pvd, word_pv = _block(inputs, j)

        def over_chunk(i, grads):
            dh_psnd, dw_psvd = grads
            here = functools.partial(
                jax.lax.dynamic_slice_in_dim, start_index=i * chunk, slice_size=chunk
            )
            h_scd, z_pscv, is_target_pscv, temperature_sc = _chunk_logits(
                inputs, w_pvd, word_pv, i, chunk
            )
            valid_sc = i * chunk + jnp.arange(chunk) < inputs.count_s[:, None]
            d_logp_sc, d_entropy_sc = (
                jnp.where(valid_sc, here(x, axis=1) / temperature_sc, 0)[..., None]
                for x in (d_logp_sn, d_entropy_sn)
            )
            logp_pscv = z_pscv - here(lse_sn, axis=1)[..., None]
            slope_pscv = d_logp_sc + d_entropy_sc * (
                logp_pscv + here(entropy_sn, axis=1)[..., None]
            )
            dz_pscv = jnp.where(is_target_pscv, d_logp_sc, 0) - jnp.exp(logp_pscv) * slope_pscv
            dz_pscv = dz_pscv.astype(dtype)
            product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
            dh_pscd = here(dh_psnd, axis=2) + product("pscv,pvd->pscd", dz_pscv, w_pvd)
            dh_psnd = jax.lax.dynamic_update_slice_in_dim(
                dh_psnd, dh_pscd.astype(dtype), i * chunk, axis=2
            )
            return dh_psnd, dw_psvd + product("pscv,scd->psvd", dz_pscv, h_scd)

        dh_psnd, dw_pjvd = grads
        dw_psvd = jnp.zeros((parts, len(inputs.count_s), words, d), jnp.float32)
        dw_psvd = sharding.constrain(dw_psvd, "vocabulary", "prediction", None, None)
        dh_psnd, dw_psvd = jax.lax.fori_loop(0, chunks, over_chunk, (dh_psnd, dw_psvd))
        dw_pvd = sharding.constrain(dw_psvd.sum(axis=1), "vocabulary", None, "embed")
        dw_pjvd = jax.lax.dynamic_update_index_in_dim(
            dw_pjvd, dw_pvd.astype(dw_pjvd.dtype), j, axis=1
        )
        return dh_psnd, dw_pjvd

    dh_psnd = jnp.zeros((parts, *inputs.order_sn.shape, d), dtype)
    dh_psnd = sharding.constrain(dh_psnd, "vocabulary", "prediction", None, None)
    dw_pjvd = sharding.constrain(jnp.zeros_like(inputs.w_pjvd), "vocabulary", None, None, "embed")
    dh_psnd, dw_pjvd = jax.lax.fori_loop(0, blocks, over_block, (dh_psnd, dw_pjvd))
    dh_snd = jnp.take_along_axis(
        dh_psnd.sum(axis=0).astype(dtype), inputs.place_sn[..., None], axis=1
    )
    return (_Inputs(dh_snd, dw_pjvd, None, None, None, None, None),)


_fused.defvjp(_forward, _backward)
