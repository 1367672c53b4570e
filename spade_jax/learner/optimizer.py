"""AdamW computed in float32, where its state rests, and how groups share one step."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from spade_jax import config


def adamw(settings: config.Learner) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter 2019) without its learning rate, which :func:`move` applies.

    Its moments have the dtype of the parameters it is initialised with: use :func:`init`.
    """
    return optax.chain(
        optax.scale_by_adam(settings.beta1, settings.beta2),
        optax.add_decayed_weights(settings.weight_decay, mask=decays),
    )


def init(params: Any, settings: config.Learner) -> optax.OptState:
    """State before the first update: moments in ``settings.moments_dtype``, sharded like params."""
    dtype = jnp.dtype(settings.moments_dtype)
    # Not zeros on p's device: that would bind them to it, and with them everything they touch.
    like = jax.tree.map(lambda p: jnp.zeros_like(p, dtype), params)
    return rest(adamw(settings).init(like), settings)


def rest(state: Any, settings: config.Learner) -> Any:
    """``state`` where it waits for its next use: pinned host memory, if settings say so."""
    return jax.device_put(state, jax.memory.Space.Host) if settings.offload else state


def fetch(state: Any, settings: config.Learner) -> Any:
    """``state`` in device memory; inverse of :func:`rest`."""
    return jax.device_put(state, jax.memory.Space.Device) if settings.offload else state


def updates(state: optax.OptState) -> int:
    """Updates made so far."""
    return int(jax.device_get(optax.tree_utils.tree_get(state, "count")))


def move(
    params: Any,
    grads: Any,
    state: optax.OptState,
    learning_rate: jax.Array,
    settings: config.Learner,
) -> tuple[Any, optax.OptState]:
    """Parameters and state after one update, computed in float32 and kept in their dtypes."""
    masters = _float32(params)
    steps, moved_state = adamw(settings).update(grads, _float32(state), masters)
    state = jax.tree.map(lambda new, old: new.astype(old.dtype), moved_state, state)
    moved = jax.tree.map(
        lambda p, master, step: (master - learning_rate * step).astype(p.dtype),
        params,
        masters,
        steps,
    )
    return moved, state


def _float32(tree: Any) -> Any:
    def convert(x: jax.Array) -> jax.Array:
        return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(convert, tree)


def decays(params: Any) -> Any:
    """Tree of bools: weight decay is for matrices, never for norms and biases.

    Layers are stacked, so a norm's scale may have two axes: the name decides, not the rank.
    """

    def is_matrix(path: tuple, _: Any) -> bool:
        name = jax.tree_util.keystr(path).lower()
        return not any(word in name for word in ("norm", "bias"))

    return jax.tree_util.tree_map_with_path(is_matrix, params)


def clip(tree: Any, norm: jax.Array, largest: float) -> Any:
    """``tree``, whose norm is ``norm``, scaled down to a norm of at most ``largest``."""
    scale = largest / jnp.maximum(norm, largest)
    return jax.tree.map(lambda x: x * scale, tree)


def warm_rate(settings: config.Learner, updates: int) -> float:
    """Learning rate of the next update: constant after ``settings.warmup`` linear steps."""
    return settings.learning_rate * min(1.0, (updates + 1) / max(settings.warmup, 1))
