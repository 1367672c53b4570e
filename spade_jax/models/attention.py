"""Causal attention over packed rows, by the kernel that a setting names.

Axes: ``b`` row, ``t`` query position, ``s`` key position, ``h`` query head, ``k`` kv head, ``g``
query head of a kv head, ``c`` channel.
"""

import functools

import jax
import jax.numpy as jnp

from spade_jax.models import sharding
from spade_jax.models.config import ModelError

_BLOCK = 128
_MOST_BLOCKS = 16
_SPLASH_BLOCKS = (1024, 512, 256, 128)
_MASKED = -1e30  # finite, so that a row without keys gives numbers and not NaN


def attend(
    q_bthc: jax.Array, k_btkc: jax.Array, v_btkc: jax.Array, segment_bt: jax.Array, kernel: str
) -> jax.Array:
    """Grouped-query attention, causal within equal segments; softmax in float32.

    Args:
      segment_bt: int32; 0 is padding, which sees only padding and gives finite values.
      kernel: 'xla' (portable, the oracle) or 'splash', the TPU's Pallas kernel, which needs a
        length that is a multiple of 128; 'splash_interpret' runs it anywhere, for tests.

    Returns:
      o_bthc in q's dtype.

    Raises:
      ModelError: no such kernel, or a shape or mesh that it does not do.
    """
    if kernel == "xla":
        return _blockwise(q_bthc, k_btkc, v_btkc, segment_bt)
    if kernel not in ("splash", "splash_interpret"):
        raise ModelError(f"config.model.attention={kernel!r} is not supported; use 'xla'")
    splash = functools.partial(_splash, interpret=kernel == "splash_interpret")
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return splash(q_bthc, k_btkc, v_btkc, segment_bt)
    if mesh.shape["context"] > 1:
        raise ModelError(
            f"config.mesh.context = {mesh.shape['context']} splits sequences, which "
            "config.model.attention='splash' does not do; use 'xla', or a context axis of 1"
        )
    heads, kv_heads = (sharding.spec("batch", None, x, None) for x in ("heads", "kv_heads"))
    return jax.shard_map(
        splash,
        in_specs=(heads, kv_heads, kv_heads, sharding.spec("batch", None)),
        out_specs=heads,
        check_vma=False,
    )(q_bthc, k_btkc, v_btkc, segment_bt)


def _splash(
    q_bthc: jax.Array, k_btkc: jax.Array, v_btkc: jax.Array, segment_bt: jax.Array, interpret: bool
) -> jax.Array:
    """Blocks that lie wholly above the diagonal are skipped; scores never leave the core."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    _, length, heads, channels = q_bthc.shape
    block = next((size for size in _SPLASH_BLOCKS if length % size == 0), None)
    if block is None:
        raise ModelError(
            f"config.model.attention='splash' needs rows whose length is a multiple of "
            f"{_SPLASH_BLOCKS[-1]}, got {length}; change config.learner.row_length"
        )
    sizes = kernel.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=min(block, 512),
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=min(block, 512),
        use_fused_bwd_kernel=True,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    attention = kernel.make_splash_mha(
        mask, block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret
    )
    scaled_bthc = (q_bthc.astype(jnp.float32) * channels**-0.5).astype(q_bthc.dtype)
    q_bhtc, k_bktc, v_bktc = (x.swapaxes(1, 2) for x in (scaled_bthc, k_btkc, v_btkc))
    o_bhtc = jax.vmap(attention)(q_bhtc, k_bktc, v_bktc, kernel.SegmentIds(segment_bt, segment_bt))
    return o_bhtc.swapaxes(1, 2).astype(q_bthc.dtype)


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
    q_bkgtc = q_bkgtc.transpose(0, 2, 3, 1, 4)
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
    batch, kv_heads, group, length, channels = q_bkgtc.shape
    rows = (batch, kv_heads, group * length, -1)
    logit = jnp.einsum(
        "bkrc,bksc->bkrs", q_bkgtc.reshape(rows), k_bksc, preferred_element_type=jnp.float32
    )
    logit_bkgts = logit.reshape(batch, kv_heads, group, length, -1) * channels**-0.5
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
