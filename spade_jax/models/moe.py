"""Dropless experts: tokens sorted by expert, one grouped matmul a projection."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def route(
    h_nd: jax.Array, router_de: jax.Array, experts_per_token: int, renormalise: bool
) -> tuple[jax.Array, jax.Array]:
    """Weights float32 [n, k] and ids int32 [n, k] of the experts of each token, in float32."""
    logit_ne = jnp.matmul(
        h_nd.astype(jnp.float32), router_de.astype(jnp.float32), precision="highest"
    )
    weight_nk, expert_nk = jax.lax.top_k(jax.nn.softmax(logit_ne), experts_per_token)
    if renormalise:
        weight_nk /= weight_nk.sum(-1, keepdims=True)
    return weight_nk, expert_nk


def experts(
    h_nd: jax.Array,
    weight_nk: jax.Array,
    expert_nk: jax.Array,
    gate_edf: jax.Array,
    up_edf: jax.Array,
    down_efd: jax.Array,
) -> jax.Array:
    """Weighted sum of each token's SwiGLU experts.

    An id that is not in [0, experts) belongs to no expert here: it costs no matmul and adds
    nothing. That is how padding, and tokens of experts held elsewhere, are left out.

    Returns:
      o_nd in h's dtype; the sum over k is float32.
    """
    k, count = expert_nk.shape[1], gate_edf.shape[0]
    here = (expert_nk >= 0) & (expert_nk < count)
    expert_m = jnp.where(here, expert_nk, count).reshape(-1)
    order_m = jnp.argsort(expert_m)
    inverse_m = jnp.argsort(order_m)
    size_e = jnp.bincount(expert_m, length=count)
    x_md = _spread(h_nd, order_m, inverse_m, k)
    gate_mf = jax.lax.ragged_dot(x_md, gate_edf, size_e)
    up_mf = jax.lax.ragged_dot(x_md, up_edf, size_e)
    y_md = jax.lax.ragged_dot(jax.nn.silu(gate_mf) * up_mf, down_efd, size_e)
    weight_m = jnp.where(here, weight_nk, 0.0).reshape(-1)[order_m]
    y_md = y_md.astype(jnp.float32) * weight_m[:, None]
    return _collect(y_md, order_m, inverse_m, k).astype(h_nd.dtype)


# Row m of the sorted order is copy order[m] of the tokens repeated k times. Copying out and summing
# back are each other's transpose; saying so keeps the backward pass a gather, not a scatter-add.
@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _spread(h_nd: jax.Array, order_m: jax.Array, inverse_m: jax.Array, k: int) -> jax.Array:
    return h_nd[order_m // k]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _collect(y_md: jax.Array, order_m: jax.Array, inverse_m: jax.Array, k: int) -> jax.Array:
    return y_md[inverse_m].reshape(-1, k, y_md.shape[-1]).sum(1)


def _spread_forward(h_nd, order_m, inverse_m, k):
    return _spread(h_nd, order_m, inverse_m, k), (order_m, inverse_m)


def _spread_backward(k, saved, g_md):
    return _collect(g_md, *saved, k), *_no_gradient(saved)


def _collect_forward(y_md, order_m, inverse_m, k):
    return _collect(y_md, order_m, inverse_m, k), (order_m, inverse_m)


def _collect_backward(k, saved, g_nd):
    return _spread(g_nd, *saved, k), *_no_gradient(saved)


def _no_gradient(indices):
    return tuple(np.zeros(index.shape, jax.dtypes.float0) for index in indices)


_spread.defvjp(_spread_forward, _spread_backward)
_collect.defvjp(_collect_forward, _collect_backward)
