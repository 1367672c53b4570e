"""Causal attention over packed rows, by the kernel that a setting names.

Axes: ``b`` row, ``t`` query position, ``s`` key position, ``h`` query head, ``k`` kv head, ``g``
query head of a kv head, ``c`` channel.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from spade_jax.models import sharding
from spade_jax.models.config import ModelError

_BLOCK = 128
_MOST_BLOCKS = 16
_SPLASH_BLOCKS = (1024, 512, 256, 128)
RESIDUAL = "attention"
"""Name of what the backward pass needs and a recomputed layer should keep."""
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
    o_bkgtc = _causal(q_bkgtc, k_bksc, v_bksc, segment_bt)
    return o_bkgtc.transpose(0, 3, 1, 2, 4).reshape(q_bthc.shape).astype(q_bthc.dtype)


@jax.custom_vjp
def _causal(
    q_bkgtc: jax.Array, k_bksc: jax.Array, v_bksc: jax.Array, segment_bt: jax.Array
) -> jax.Array:
    """o_bkgtc, float32."""
    return _causal_forward(q_bkgtc, k_bksc, v_bksc, segment_bt)[0]


def _causal_forward(
    q_bkgtc: jax.Array, k_bksc: jax.Array, v_bksc: jax.Array, segment_bt: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    outputs, sums = [], []
    for start, stop in _blocks(q_bkgtc.shape[3]):
        logit_bkrs = _logits(q_bkgtc, k_bksc, segment_bt, start, stop)
        largest_bkr = logit_bkrs.max(-1)
        weight_bkrs = jnp.exp(logit_bkrs - largest_bkr[..., None])
        total_bkr = weight_bkrs.sum(-1)
        o_bkrc = _matmul(weight_bkrs.astype(v_bksc.dtype), v_bksc[:, :, :stop], (3, 2))
        outputs.append(_unfold(o_bkrc / total_bkr[..., None], q_bkgtc))
        sums.append(largest_bkr + jnp.log(total_bkr))
    o_bkgtc = checkpoint_name(jnp.concatenate(outputs, axis=3), RESIDUAL)
    log_sums = [checkpoint_name(log_sum_bkr, RESIDUAL) for log_sum_bkr in sums]
    return o_bkgtc, (q_bkgtc, k_bksc, v_bksc, segment_bt, o_bkgtc, *log_sums)


def _causal_backward(
    saved: tuple[jax.Array, ...], do_bkgtc: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """As in FlashAttention-2 (Dao 2023), section 3.1: weights are made again from their log-sums.

    The gradients of keys and values are made as x^T w, which leaves the large operand in place.
    """
    q_bkgtc, k_bksc, v_bksc, segment_bt, o_bkgtc, *log_sums = saved
    dq_bkgtc = []
    dk_bkcs, dv_bkcs = (jnp.zeros(k_bksc.mT.shape, jnp.float32) for _ in range(2))
    for (start, stop), log_sum_bkr in zip(_blocks(q_bkgtc.shape[3]), log_sums, strict=True):
        q_bkrc, o_bkrc, do_bkrc = (_fold(x, start, stop) for x in (q_bkgtc, o_bkgtc, do_bkgtc))
        logit_bkrs = _logits(q_bkgtc, k_bksc, segment_bt, start, stop)
        weight_bkrs = jnp.exp(logit_bkrs - log_sum_bkr[..., None])
        dtype = v_bksc.dtype
        dv_bkcs = dv_bkcs.at[..., :stop].add(
            _matmul(do_bkrc.astype(dtype), weight_bkrs.astype(dtype), (2, 2))
        )
        dweight_bkrs = _matmul(do_bkrc.astype(dtype), v_bksc[:, :, :stop], (3, 3))
        mean_bkr = (do_bkrc * o_bkrc).sum(-1)
        dlogit_bkrs = weight_bkrs * (dweight_bkrs - mean_bkr[..., None])
        dlogit_bkrs = (dlogit_bkrs * q_bkgtc.shape[-1] ** -0.5).astype(dtype)
        dq_bkgtc.append(_unfold(_matmul(dlogit_bkrs, k_bksc[:, :, :stop], (3, 2)), q_bkgtc))
        dk_bkcs = dk_bkcs.at[..., :stop].add(_matmul(q_bkrc, dlogit_bkrs, (2, 2)))
    dq = jnp.concatenate(dq_bkgtc, axis=3).astype(q_bkgtc.dtype)
    return dq, dk_bkcs.mT.astype(k_bksc.dtype), dv_bkcs.mT.astype(v_bksc.dtype), None


_causal.defvjp(_causal_forward, _causal_backward)


def _blocks(length: int) -> list[tuple[int, int]]:
    """First and past-last query of each block."""
    block = max(_BLOCK, -(-length // _MOST_BLOCKS))
    return [(start, min(start + block, length)) for start in range(0, length, block)]


def _fold(x_bkgtc: jax.Array, start: int, stop: int) -> jax.Array:
    """Positions of a block, heads of a group folded into rows ``r``: one matmul a kv head."""
    batch, kv_heads, _, _, channels = x_bkgtc.shape
    return x_bkgtc[:, :, :, start:stop].reshape(batch, kv_heads, -1, channels)


def _unfold(x_bkrc: jax.Array, like_bkgtc: jax.Array) -> jax.Array:
    batch, kv_heads, group, _, channels = like_bkgtc.shape
    return x_bkrc.reshape(batch, kv_heads, group, -1, channels)


def _matmul(a: jax.Array, b: jax.Array, contracted: tuple[int, int]) -> jax.Array:
    """Product over one axis of each, for every row and kv head, float32."""
    axes = (((contracted[0],), (contracted[1],)), ((0, 1), (0, 1)))
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def _logits(
    q_bkgtc: jax.Array, k_bksc: jax.Array, segment_bt: jax.Array, start: int, stop: int
) -> jax.Array:
    """Scaled and masked logit_bkrs of a block of queries and the keys up to its end."""
    batch, kv_heads, group, _, channels = q_bkgtc.shape
    logit_bkrs = _matmul(_fold(q_bkgtc, start, stop), k_bksc[:, :, :stop], (3, 3))
    causal_ts = jnp.arange(start, stop)[:, None] >= jnp.arange(stop)
    same_bts = segment_bt[:, start:stop, None] == segment_bt[:, None, :stop]
    logit_bkgts = logit_bkrs.reshape(batch, kv_heads, group, stop - start, stop) * channels**-0.5
    logit_bkgts = jnp.where((causal_ts & same_bts)[:, None, None], logit_bkgts, _MASKED)
    return logit_bkgts.reshape(logit_bkrs.shape)
