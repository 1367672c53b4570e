"""Causal attention over packed rows, by the kernel that a setting names."""

import jax
import jax.numpy as jnp


def attend(
    q_bthc: jax.Array, k_btkc: jax.Array, v_btkc: jax.Array, segment_bt: jax.Array, kernel: str
) -> jax.Array:
    """Grouped-query attention, causal within equal non-zero segments; softmax in float32.

    Args:
      segment_bt: int32; positions with 0 are padding, see nothing and give finite values.
      kernel: 'xla'.

    Returns:
      o_bthc in q's dtype.
    """
    del kernel
    length = q_bthc.shape[1]
    causal = jnp.tril(jnp.ones((length, length), bool))
    same = segment_bt[:, :, None] == segment_bt[:, None, :]
    mask = (causal & same & (segment_bt > 0)[:, :, None])[:, None]
    return jax.nn.dot_product_attention(q_bthc, k_btkc, v_btkc, mask=mask, implementation="xla")
