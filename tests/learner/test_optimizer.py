import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from learner_oracle import tiny_model

from spade_jax import config
from spade_jax.learner import optimizer


def test_ten_updates_equal_torch_adamw():
    rng = np.random.default_rng(0)
    learner = config.Learner(weight_decay=0.1)
    start = {"w": rng.normal(size=(3, 4)), "attention_norm": rng.normal(size=(4,))}
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in start.items()}
    reference = torch.optim.AdamW(
        [
            {"params": [tensors["w"]], "weight_decay": 0.1},
            {"params": [tensors["attention_norm"]], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.98),
        eps=1e-8,
    )
    params = {k: jnp.float32(v) for k, v in start.items()}
    state = optimizer.init(params, learner)
    for _ in range(10):
        grads = {k: rng.normal(size=v.shape) for k, v in start.items()}
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(grads[name])
        reference.step()
        params, state = optimizer.move(
            params, jax.tree.map(jnp.float32, grads), state, jnp.float32(1e-2), learner
        )
    for name, tensor in tensors.items():
        np.testing.assert_allclose(params[name], tensor.detach(), rtol=1e-5, atol=1e-6)
    assert optimizer.updates(state) == 10


def test_decay_is_for_matrices_of_the_real_model_only():
    marked = jax.tree_util.tree_leaves_with_path(optimizer.decays(nnx.state(tiny_model())))
    decayed = {jax.tree_util.keystr(path).split("'")[-2] for path, decay in marked if decay}
    spared = {jax.tree_util.keystr(path).split("'")[-2] for path, decay in marked if not decay}
    assert decayed == {"embedding", "q", "k", "v", "o", "gate", "up", "down"}
    assert spared == {"norm", "attention_norm", "feed_forward_norm", "q_norm", "k_norm"}


def test_bfloat16_parameters_keep_their_dtype_and_float32_moments():
    params = {"w": jnp.ones((2, 2), jnp.bfloat16)}
    state = optimizer.init(params, config.Learner())
    grads = {"w": jnp.ones((2, 2), jnp.float32)}
    params, state = optimizer.move(params, grads, state, jnp.float32(0.5), config.Learner())
    assert params["w"].dtype == jnp.bfloat16
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2, 2)]
    assert [moment.dtype for moment in moments] == [jnp.float32] * 2
    np.testing.assert_allclose(np.float32(params["w"]), 1 - 0.5 * (1 + 0.1), rtol=1e-2)


def test_bfloat16_moments_are_float32_ones_rounded_after_each_update():
    rng = np.random.default_rng(1)
    grads = [{"w": jnp.float32(rng.normal(size=(8, 8)))} for _ in range(3)]
    learner = config.Learner(moments_dtype="bfloat16")
    params = {"w": jnp.ones((8, 8))}
    state = optimizer.init(params, learner)
    mean, square = np.zeros((2, 8, 8), np.float32)
    for gradient in grads:
        params, state = optimizer.move(params, gradient, state, jnp.float32(1e-2), learner)
        g = np.asarray(gradient["w"])
        mean, square = 0.9 * mean + 0.1 * g, 0.98 * square + 0.02 * g**2
        mean, square = (np.asarray(jnp.bfloat16(x), np.float32) for x in (mean, square))
    stored = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (8, 8)]
    assert [leaf.dtype for leaf in stored] == [jnp.bfloat16] * 2
    for leaf, want in zip(stored, (mean, square), strict=True):
        np.testing.assert_allclose(np.asarray(leaf, np.float32), want, rtol=2**-7)
    assert params["w"].dtype == jnp.float32


@pytest.mark.parametrize("norm", [0.0, 0.5, 1.0, 7.0])
def test_clip_bounds_the_norm_and_keeps_the_direction(norm):
    direction = np.array([3.0, 4.0]) / 5
    tree = {"a": jnp.float32(direction[0] * norm), "b": jnp.float32(direction[1] * norm)}
    measured = optax.tree.norm(tree)
    np.testing.assert_allclose(measured, norm, rtol=1e-6)
    clipped = optimizer.clip(tree, measured, 1.0)
    expected = direction * min(norm, 1.0)
    np.testing.assert_allclose([clipped["a"], clipped["b"]], expected, rtol=1e-6)


def test_warm_up_is_linear_then_constant():
    warm = config.Learner(learning_rate=1.0, warmup=4)
    assert [optimizer.warm_rate(warm, n) for n in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert optimizer.warm_rate(config.Learner(learning_rate=2.0), 0) == 2.0
