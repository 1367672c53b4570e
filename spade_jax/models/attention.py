"""Causal attention over packed rows, by the kernel that a setting names.

Axes: ``b`` row, ``t`` query position, ``s`` key position, ``h`` query head, ``k`` kv head, ``g``
query head of a kv head, ``c`` channel.
"""

import jax
import jax.numpy as jnp

from spade_jax.models.config import ModelError

_BLOCK = 128
_MOST_BLOCKS = 16
_MASKED = -1e30  # finite, so that a row without keys gives numbers and not NaN


def attend(
    q_bthc: jax.Array, k_btkc: jax.Array, v_btkc: jax.Array, segment_bt: jax.Array, kernel: str
) -> jax.Array:
    """Grouped-query attention, causal within equal segments; softmax in float32.

    Args:
      segment_bt: int32; 0 is padding, which sees only padding and gives finite values.
      kernel: 'xla'.

    Returns:
      o_bthc in q's dtype.

    Raises:
      ModelError: no such kernel.
    """
    if kernel != "xla":
        raise ModelError(f"config.model.attention={kernel!r} is not supported; use 'xla'")
    return _blockwise(q_bthc, k_btkc, v_btkc, segment_bt)


def _blockwise(
    q_bthc: jax.Array, k_btkc: jax.Array, v_btkc: jax.Array, segment_bt: jax.Array
) -> jax.Array:
    """Query blocks against the keys up to their end: half the work and memory of a full mask.

    On CPU, forward and backward take about a third of ``jax.nn.dot_product_attention``'s time.
    Blocks are unrolled, at most 16 of them, so that their static shapes cost little compilation.
    """
    batch, length, heads, channels = q_bthc.shape
    kv_heads = k_btkc.shape[2]
    q_bkgtc = q_bthc.reshape(batch, length, kv_heads, heads // kv_heads, channels)
    q_bkgtc = q_bkgtc.transpose(0, 2, 3, 1, 4) * channels**-0.5
    k_bksc, v_bksc = k_btkc.transpose(0, 2, 1, 3), v_btkc.transpose(0, 2, 1, 3)
    block = max(_BLOCK, -(-length // _MOST_BLOCKS))
    outputs = []
    for start in range(0, length, block):
        stop = min(start + block, length)
        causal_ts = jnp.arange(start, stop)[:, None] >= jnp.arange(stop)
        same_bts = segment_bt[:, start:stop, None] == segment_bt[:, None, :stop]
        outputs.append(
            _softmax_product(
                q_bkgtc[:, :, :, start:stop],
                k_bksc[:, :, :stop],
                v_bksc[:, :, :stop],
                causal_ts & same_bts,
            )
        )
    o_bkgtc = jnp.concatenate(outputs, axis=3)
    return o_bkgtc.transpose(0, 3, 1, 2, 4).reshape(q_bthc.shape).astype(q_bthc.dtype)


def _softmax_product(
    q_bkgtc: jax.Array, k_bksc: jax.Array, v_bksc: jax.Array, mask_bts: jax.Array
) -> jax.Array:
    """o_bkgtc, float32. Heads of a group are folded into rows: one matmul a kv head."""
    batch, kv_heads, group, length, _ = q_bkgtc.shape
    rows = (batch, kv_heads, group * length, -1)
    logit = jnp.einsum(
        "bkrc,bksc->bkrs", q_bkgtc.reshape(rows), k_bksc, preferred_element_type=jnp.float32
    )
    logit_bkgts = logit.reshape(batch, kv_heads, group, length, -1)
    logit_bkgts = jnp.where(mask_bts[:, None, None], logit_bkgts, _MASKED)
    largest = jax.lax.stop_gradient(logit_bkgts.max(-1, keepdims=True))
    weight_bkgts = jnp.exp(logit_bkgts - largest)
    total_bkgt = weight_bkgts.sum(-1)
    product = jnp.einsum(
        "bkrs,bksc->bkrc",
        weight_bkgts.astype(v_bksc.dtype).reshape(rows),
        v_bksc,
        preferred_element_type=jnp.float32,
    )
    return product.reshape(q_bkgtc.shape) / total_bkgt[..., None]
