"""AdamW with float32 moments, and the two ways in which groups share one step."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from spade_jax import config

EPSILON = 1e-8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OptimizerState:
    """Updates made so far (int32 scalar) and float32 moments shaped and sharded like parameters."""

    count: jax.Array
    mean: Any
    variance: Any


def init(params: Any) -> OptimizerState:
    """State before the first update."""

    def zeros() -> Any:
        return jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), params)

    return OptimizerState(jnp.zeros((), jnp.int32), zeros(), zeros())


def decays(params: Any) -> Any:
    """Tree of bools: weight decay is for matrices, never for norms and biases.

    Layers are stacked, so a norm's scale may have two axes: the name decides, not the rank.
    """

    def is_matrix(path: tuple, _: Any) -> bool:
        name = jax.tree_util.keystr(path).lower()
        return not any(word in name for word in ("norm", "bias"))

    return jax.tree_util.tree_map_with_path(is_matrix, params)


def global_norm(tree: Any) -> jax.Array:
    """Euclidean norm over all leaves, summed in float32."""
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)]
    return jnp.sqrt(jnp.stack(squares).sum())


def clip(tree: Any, norm: jax.Array, largest: float) -> Any:
    """``tree``, whose norm is ``norm``, scaled down to a norm of at most ``largest``."""
    scale = largest / jnp.maximum(norm, largest)
    return jax.tree.map(lambda x: x * scale, tree)


def warm_rate(settings: config.Learner, updates: int) -> float:
    """Learning rate of the next update: constant after ``settings.warmup`` linear steps."""
    return settings.learning_rate * min(1.0, (updates + 1) / max(settings.warmup, 1))


def adamw(
    params: Any,
    grads: Any,
    state: OptimizerState,
    learning_rate: jax.Array,
    settings: config.Learner,
) -> tuple[Any, OptimizerState]:
    """One AdamW update (Loshchilov & Hutter 2019, algorithm 2, decoupled decay), in float32."""
    beta1, beta2 = settings.beta1, settings.beta2
    count = state.count + 1
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, grads)
    variance = jax.tree.map(
        lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state.variance, grads
    )
    correction1 = 1 - jnp.float32(beta1) ** count
    correction2 = 1 - jnp.float32(beta2) ** count

    def move(p: jax.Array, m: jax.Array, v: jax.Array, decay: bool) -> jax.Array:
        step = (m / correction1) / (jnp.sqrt(v / correction2) + EPSILON)
        master = p.astype(jnp.float32)
        if decay:
            step += settings.weight_decay * master
        return (master - learning_rate * step).astype(p.dtype)

    moved = jax.tree.map(move, params, mean, variance, decays(params))
    return moved, OptimizerState(count, mean, variance)
