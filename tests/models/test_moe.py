"""Experts against the slow way: every token through each of its experts, one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.models import moe

N, D, F, E, K = 40, 16, 24, 5, 2
KERNELS = ("ragged_dot", "blocks", "gmm_interpret")


def silu(x):
    return x / (1 + np.exp(-x))


def slow(h_nd, weight_nk, expert_nk, gate, up, down):
    out = np.zeros(h_nd.shape)
    for n, h in enumerate(h_nd):
        for weight, expert in zip(weight_nk[n], expert_nk[n], strict=True):
            if 0 <= expert < len(gate):
                out[n] += weight * ((silu(h @ gate[expert]) * (h @ up[expert])) @ down[expert])
    return out


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    expert_nk = np.stack([rng.permutation(E)[:K] for _ in range(N)])
    expert_nk[expert_nk == 3] = 0  # expert 3 gets nothing, some tokens choose 0 twice
    expert_nk[5:9] = E  # padding: no expert at all
    expert_nk[11, 0] = -2  # held elsewhere
    floats = [
        rng.normal(size=shape).astype(np.float32)
        for shape in ((N, D), (N, K), (E, D, F), (E, D, F), (E, F, D))
    ]
    return floats[0], floats[1], expert_nk, *floats[2:]


@pytest.fixture(params=["few tokens", "many"])
def amount(request, monkeypatch):
    monkeypatch.setattr(moe, "_FEW", N if request.param == "few tokens" else 0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_slow_way(kernel, case, amount):
    out = jax.jit(moe.experts, static_argnums=6)(*case, kernel)
    np.testing.assert_allclose(out, slow(*case), atol=1e-3, rtol=1e-5)
    assert (np.asarray(out)[5:9] == 0).all()


@pytest.mark.parametrize("busiest", [16, 24, 25, 33, 40])
def test_few_tokens_all_get_a_row_however_uneven(busiest, case):
    """On either side of each share: 24, 32, 40."""
    h_nd, weight_nk, expert_nk, *matrices = case
    expert_nk = np.stack([1 + np.arange(N) % (E - 1), np.full(N, E)], 1)
    expert_nk[:busiest, 0] = 0
    assert moe._shares(N, K, E) == [24, 32, 40]
    arguments = (h_nd, weight_nk, expert_nk, *matrices)
    out = jax.jit(moe.experts, static_argnums=6)(*arguments, "blocks")
    np.testing.assert_allclose(out, slow(*arguments), atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_equal_a_masked_dense_product(kernel, case, amount):
    h_nd, weight_nk, expert_nk, *matrices = case

    def dense(h_nd, weight_nk, gate, up, down):
        hot_nke = jax.nn.one_hot(expert_nk, E)  # ids out of range are rows of zeros
        a_nef = jax.nn.silu(jnp.einsum("nd,edf->nef", h_nd, gate))
        a_nef *= jnp.einsum("nd,edf->nef", h_nd, up)
        return jnp.einsum("nef,efd,nke,nk->nd", a_nef, down, hot_nke, weight_nk)

    def ours(h_nd, weight_nk, gate, up, down):
        return moe.experts(h_nd, weight_nk, expert_nk, gate, up, down, kernel)

    arguments = (h_nd, weight_nk, *matrices)
    probe = np.random.default_rng(1).normal(size=(N, D)).astype(np.float32)
    expected, actual = (
        jax.jit(jax.grad(lambda *a, f=f: (f(*a) * probe).sum(), argnums=range(5)))(*arguments)
        for f in (dense, ours)
    )
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize(("copies", "count"), [(1, 1), (7, 128), (64, 4), (1000, 128), (5000, 4)])
def test_blocks_always_have_room_for_every_copy(copies, count):
    # Worst cases: all on one expert, one row more than whole blocks on every expert, even.
    block = moe._block_size(copies, count)
    worst = np.minimum(np.arange(copies) // (block + 1), count - 1)
    for expert_m in (np.zeros(copies, int), worst, np.arange(copies) % count):
        size_e = jnp.bincount(expert_m, length=count)
        grouping = moe._group_in_blocks(jnp.asarray(expert_m), size_e, block, block)
        row_m, source_p = np.asarray(grouping.row_m), np.asarray(grouping.source_p)
        assert (source_p[row_m] == np.arange(copies)).all()
        assert (np.asarray(grouping.expert_p)[row_m] == expert_m).all()
        assert len(source_p) % block == 0
        assert (
            grouping.expert_p[::block] == np.asarray(grouping.expert_p).reshape(-1, block).T
        ).all()


def test_empty_batch_of_padding_is_finite_and_zero(case):
    h_nd, weight_nk, expert_nk, *matrices = case
    for kernel in KERNELS:
        out = jax.jit(moe.experts, static_argnums=6)(
            h_nd, weight_nk, np.full_like(expert_nk, E), *matrices, kernel
        )
        assert (np.asarray(out) == 0).all()


@pytest.mark.parametrize("block", [1, 8])
def test_padding_has_no_row_to_multiply(block, case):
    """The grouped matmul runs over the rows of ``size_e`` alone."""
    expert_m = np.where(case[2] < 0, E, case[2]).reshape(-1)
    counts = np.bincount(expert_m[expert_m < E], minlength=E)
    grouping = moe._group_in_blocks(jnp.asarray(expert_m), jnp.asarray(counts), block, block)
    np.testing.assert_array_equal(grouping.size_e, -(-counts // block) * block)
    copies = np.asarray(grouping.source_p)
    assert set(copies[copies < len(expert_m)]) == set(np.flatnonzero(expert_m < E))
