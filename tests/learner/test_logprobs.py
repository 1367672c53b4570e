import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from spade_jax.learner.logprobs import Shards, target_logp


def draw(seed, rows=3, length=20, hidden=8, vocabulary=36, scale=1.0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(rows, length, hidden)) * scale
    w = rng.normal(size=(vocabulary, hidden))
    target = rng.integers(0, vocabulary, (rows, length))
    temperature = rng.uniform(0.5, 1.5, (rows, length))
    needed = rng.random((rows, length)) < 0.4
    return h, w, target, temperature, needed


def oracle(h, w, target, temperature, needed, g_logp, g_entropy):
    """Float64 full logits; values and gradients of sum(g . output)."""
    h, w = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (h, w))
    logp = torch.log_softmax(h @ w.T / torch.tensor(temperature)[..., None], -1)
    entropy = -(logp.exp() * logp).sum(-1)
    mask = torch.tensor(needed)
    chosen = logp.gather(-1, torch.tensor(target)[..., None])[..., 0] * mask
    entropy = entropy * mask
    (chosen * torch.tensor(g_logp) + entropy * torch.tensor(g_entropy)).sum().backward()
    return [x.detach().numpy() for x in (chosen, entropy, h.grad, w.grad)]


def ours(h, w, target, temperature, needed, g_logp, g_entropy, **kwargs):
    args = jnp.asarray(target, jnp.int32), jnp.float32(temperature), jnp.asarray(needed)
    f = jax.jit(lambda h, w: target_logp(h, w, *args, **kwargs))
    outputs, pull = jax.vjp(f, jnp.float32(h), jnp.float32(w))
    return [*outputs, *pull((jnp.float32(g_logp), jnp.float32(g_entropy)))]


@pytest.mark.parametrize(
    "cut",
    [
        {"chunk": 7},
        {"chunk": 256, "block": 10},
        {"chunk": 4, "shards": Shards(rows=3)},
        {"chunk": 20, "shards": Shards(rows=3, length=4, vocabulary=2), "block": 9},
    ],
)
def test_values_and_gradients_against_float64(cut):
    inputs = draw(0)
    g = np.random.default_rng(1).normal(size=(2, *inputs[2].shape))
    for got, want in zip(ours(*inputs, *g, **cut), oracle(*inputs, *g), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all_needed(share):
    h, w, target, temperature, _ = draw(2)
    needed = np.full(target.shape, bool(share))
    g = np.ones((2, *target.shape))
    for got, want in zip(
        ours(h, w, target, temperature, needed, *g, chunk=8),
        oracle(h, w, target, temperature, needed, *g),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_extreme_logits_stay_finite():
    h, w, target, temperature, needed = draw(3, scale=300.0)
    g = np.ones((2, *target.shape))
    got = ours(h, w, target, temperature, needed, *g, chunk=8)
    want = oracle(h, w, target, temperature, needed, *g)
    for x, y in zip(got[:2], want[:2], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3)
    assert all(np.isfinite(x).all() for x in got)


def test_garbage_at_unneeded_places_does_not_spread():
    h, w, target, temperature, needed = draw(4)
    g = np.ones((2, *target.shape))
    clean = ours(h, w, target, temperature, needed, *g, chunk=16)
    dirty = ours(
        np.where(needed[..., None], h, np.nan), w, target, temperature, needed, *g, chunk=16
    )
    for x, y in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(x, y)


def test_bfloat16_inputs_give_float32_outputs_near_the_exact_ones():
    h, w, target, temperature, needed = draw(5, hidden=32)
    h, w = (np.asarray(jnp.bfloat16(x)) for x in (h, w))
    logp, entropy = target_logp(
        jnp.asarray(h),
        jnp.asarray(w),
        jnp.asarray(target, jnp.int32),
        jnp.float32(temperature),
        jnp.asarray(needed),
    )
    zeros = np.zeros(target.shape)
    want = oracle(
        h.astype(np.float64), w.astype(np.float64), target, temperature, needed, zeros, zeros
    )
    assert logp.dtype == entropy.dtype == jnp.float32
    np.testing.assert_allclose(logp, want[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(entropy, want[1], rtol=1e-4, atol=1e-4)


def test_no_array_holds_all_logits():
    rows, length, vocabulary, chunk = 4, 512, 1000, 64
    shapes = (
        jax.ShapeDtypeStruct((rows, length, 16), jnp.float32),
        jax.ShapeDtypeStruct((vocabulary, 16), jnp.float32),
    )
    ids = jnp.zeros((rows, length), jnp.int32)

    def loss(h, w):
        logp, entropy = target_logp(h, w, ids, jnp.ones(ids.shape), ids == 0, chunk=chunk)
        return logp.sum() + entropy.sum()

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).compile()
    all_logits = rows * length * vocabulary * 4
    assert compiled.memory_analysis().temp_size_in_bytes < all_logits / 4
    assert compiled.memory_analysis().temp_size_in_bytes > chunk * vocabulary * 4  # it is measured
