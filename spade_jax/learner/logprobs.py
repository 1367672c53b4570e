"""Target log-prob and entropy fused with the output head, in chunks, both passes.

The logits of a chunk of predictions are made, reduced to three numbers each and dropped; the
backward pass makes them again. Predictions that nothing is learnt from are moved behind the
others, and the loop ends before them: they cost nothing. [B, T, V] never exists.
"""

import functools

import jax
import jax.numpy as jnp

CHUNK = 256
"""Predictions whose logits exist at one time, per shard."""


def target_logp(
    h_btd: jax.Array,
    w_vd: jax.Array,
    target_bt: jax.Array,
    temperature_bt: jax.Array,
    needed_bt: jax.Array,
    shards: int = 1,
    chunk: int = CHUNK,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of each target, and entropy, of softmax(h w^T / temperature).

    Args:
      h_btd: hidden states after the final norm, any float dtype.
      w_vd: output head, same dtype.
      target_bt: int32 ids.
      temperature_bt: float32, above 0.
      needed_bt: bool; elsewhere the results are 0 and carry no gradient.
      shards: blocks of rows that different devices hold; no prediction moves between them.
      chunk: predictions a shard handles at a time.

    Returns:
      logp_bt and entropy_bt, float32, in nats; differentiable once in h_btd and w_vd.
    """
    b, t, d = h_btd.shape
    n = b * t // shards
    chunk = min(chunk, n)
    needed_sn = needed_bt.reshape(shards, n)
    order_sn = jnp.argsort(~needed_sn, axis=1, stable=True)
    place_sn = jnp.argsort(order_sn, axis=1)
    count_s = needed_sn.sum(axis=1)
    order_sn = jnp.pad(order_sn, ((0, 0), (0, -n % chunk)))
    logp_sn, entropy_sn = _fused(
        chunk,
        h_btd.reshape(shards, n, d),
        w_vd,
        target_bt.reshape(shards, n),
        temperature_bt.reshape(shards, n),
        order_sn,
        place_sn,
        count_s,
    )
    return logp_sn.reshape(b, t), entropy_sn.reshape(b, t)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, place_sn, count_s):
    outputs, _ = _forward(
        chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, place_sn, count_s
    )
    return outputs


def _chunk_logits(i, chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, count_s):
    """Hidden states, tempered logits and target mask of chunk ``i``, in the order of need."""
    order_sc = jax.lax.dynamic_slice_in_dim(order_sn, i * chunk, chunk, axis=1)
    valid_sc = i * chunk + jnp.arange(chunk) < count_s[:, None]
    h_scd = jnp.take_along_axis(h_snd, order_sc[..., None], axis=1)
    h_scd = jnp.where(valid_sc[..., None], h_scd, 0)  # whatever padding holds must not spread
    temperature_sc = jnp.take_along_axis(temperature_sn, order_sc, axis=1)
    target_sc = jnp.take_along_axis(target_sn, order_sc, axis=1)
    z_scv = jnp.einsum("scd,vd->scv", h_scd, w_vd, preferred_element_type=jnp.float32)
    z_scv = z_scv / temperature_sc[..., None]
    is_target_scv = target_sc[..., None] == jnp.arange(w_vd.shape[0])
    return h_scd, z_scv, is_target_scv, temperature_sc


def _forward(chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, place_sn, count_s):
    def body(i, buffers):
        _, z_scv, is_target_scv, _ = _chunk_logits(
            i, chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, count_s
        )
        highest_sc = z_scv.max(axis=-1)
        z_scv = z_scv - highest_sc[..., None]
        e_scv = jnp.exp(z_scv)
        sum_sc = e_scv.sum(axis=-1)
        log_sum_sc = jnp.log(sum_sc)
        logp_sc = jnp.where(is_target_scv, z_scv, 0).sum(axis=-1) - log_sum_sc
        entropy_sc = log_sum_sc - (e_scv * z_scv).sum(axis=-1) / sum_sc
        new = (logp_sc, entropy_sc, highest_sc + log_sum_sc)
        return tuple(
            jax.lax.dynamic_update_slice_in_dim(buffer, value, i * chunk, axis=1)
            for buffer, value in zip(buffers, new, strict=True)
        )

    zeros = jnp.zeros(order_sn.shape, jnp.float32)
    logp_sn, entropy_sn, lse_sn = jax.lax.fori_loop(
        0, -(-count_s.max() // chunk), body, (zeros, zeros, zeros)
    )
    needed_sn = place_sn < count_s[:, None]
    outputs = tuple(
        jnp.where(needed_sn, jnp.take_along_axis(x, place_sn, axis=1), 0)
        for x in (logp_sn, entropy_sn)
    )
    inputs = (h_snd, w_vd, target_sn, temperature_sn, order_sn, place_sn, count_s)
    return outputs, (inputs, entropy_sn, lse_sn)


def _backward(chunk, saved, cotangents):
    """With p = softmax(z): d logp / dz = onehot - p and d entropy / dz = -p (log p + entropy)."""
    (h_snd, w_vd, target_sn, temperature_sn, order_sn, place_sn, count_s), entropy_sn, lse_sn = (
        saved
    )
    d_logp_sn, d_entropy_sn = (jnp.take_along_axis(x, order_sn, axis=1) for x in cotangents)

    def body(i, carry):
        dh_snd, dw_vd = carry
        here = functools.partial(
            jax.lax.dynamic_slice_in_dim, start_index=i * chunk, slice_size=chunk, axis=1
        )
        h_scd, z_scv, is_target_scv, temperature_sc = _chunk_logits(
            i, chunk, h_snd, w_vd, target_sn, temperature_sn, order_sn, count_s
        )
        valid_sc = i * chunk + jnp.arange(chunk) < count_s[:, None]
        d_logp_sc = jnp.where(valid_sc, here(d_logp_sn) / temperature_sc, 0)[..., None]
        d_entropy_sc = jnp.where(valid_sc, here(d_entropy_sn) / temperature_sc, 0)[..., None]
        logp_scv = z_scv - here(lse_sn)[..., None]
        slope_scv = d_logp_sc + d_entropy_sc * (logp_scv + here(entropy_sn)[..., None])
        dz_scv = jnp.where(is_target_scv, d_logp_sc, 0) - jnp.exp(logp_scv) * slope_scv
        dz_scv = dz_scv.astype(h_snd.dtype)
        dh_scd = jnp.einsum("scv,vd->scd", dz_scv, w_vd)
        dh_snd = jax.lax.dynamic_update_slice_in_dim(dh_snd, dh_scd, i * chunk, axis=1)
        dw_vd += jnp.einsum("scv,scd->vd", dz_scv, h_scd, preferred_element_type=jnp.float32)
        return dh_snd, dw_vd

    dh_snd = jnp.zeros((*order_sn.shape, h_snd.shape[-1]), h_snd.dtype)
    dh_snd, dw_vd = jax.lax.fori_loop(
        0, -(-count_s.max() // chunk), body, (dh_snd, jnp.zeros(w_vd.shape, jnp.float32))
    )
    dh_snd = jnp.take_along_axis(dh_snd, place_sn[..., None], axis=1)
    return dh_snd, dw_vd.astype(w_vd.dtype), None, None, None, None, None


_fused.defvjp(_forward, _backward)
