"""Attention against jax.nn.dot_product_attention with an explicit mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.models import attention
from spade_jax.models.config import ModelError


def oracle(q_bthc, k_btkc, v_btkc, segment_bt):
    t = np.arange(q_bthc.shape[1])
    mask_bts = (t[:, None] >= t) & (segment_bt[:, :, None] == segment_bt[:, None, :])
    return jax.nn.dot_product_attention(q_bthc, k_btkc, v_btkc, mask=mask_bts[:, None])


def case(length, heads=4, kv_heads=2, rows=2, channels=8):
    rng = np.random.default_rng(0)
    q_bthc = rng.normal(size=(rows, length, heads, channels)).astype(np.float32) * 2
    k_btkc, v_btkc = rng.normal(size=(2, rows, length, kv_heads, channels)).astype(np.float32) * 2
    segment_bt = np.sort(rng.integers(0, 4, (rows, length)), axis=1)[:, ::-1].copy()  # 3..0 = pad
    return q_bthc, k_btkc, v_btkc, segment_bt


@pytest.mark.parametrize("length", [1, 7, 128, 129, 300])
@pytest.mark.parametrize("heads", [(4, 4), (4, 1)])
def test_equals_a_masked_softmax(length, heads):
    arguments = case(length, *heads)
    actual = attention.attend(*arguments, "xla")
    np.testing.assert_allclose(actual, oracle(*arguments), atol=2e-5)


def test_gradients_equal():
    *qkv, segment_bt = case(200)
    probe = np.random.default_rng(1).normal(size=qkv[0].shape).astype(np.float32)
    expected, actual = (
        jax.jit(jax.grad(lambda *a, f=f: (f(*a, segment_bt) * probe).sum(), argnums=(0, 1, 2)))(
            *qkv
        )
        for f in (oracle, lambda *a: attention.attend(*a, "xla"))
    )
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_long_rows_have_few_blocks():
    """Unrolled blocks are bounded, or compiling a row of 32,768 tokens would take minutes."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in case(16)]
    long = [jax.ShapeDtypeStruct((1, 32768, *s.shape[2:]), s.dtype) for s in shapes]
    jaxpr = str(jax.make_jaxpr(lambda *a: attention.attend(*a, "xla"))(*long))
    assert jaxpr.count("dot_general") == 2 * 16


def test_splash_equals_the_plain_path_forward_and_backward():
    """The TPU's own kernel, interpreted: packed segments, padding and grouped heads."""
    *qkv, segment_bt = case(256, heads=4, kv_heads=2, rows=1, channels=128)
    probe = np.random.default_rng(1).normal(size=qkv[0].shape).astype(np.float32)
    probe *= (segment_bt > 0)[..., None, None]  # what padding gives means nothing

    def loss(kernel):
        def value(*qkv):
            o_bthc = attention.attend(*qkv, segment_bt, kernel)
            return (o_bthc * probe).sum(), o_bthc

        return jax.jit(jax.grad(value, argnums=(0, 1, 2), has_aux=True))

    (expected, plain), (actual, splash) = loss("xla")(*qkv), loss("splash_interpret")(*qkv)
    trained = np.broadcast_to((segment_bt > 0)[..., None, None], plain.shape)
    np.testing.assert_allclose(splash[trained], plain[trained], atol=5e-5)  # values up to 8
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_splash_refuses_a_length_without_blocks():
    with pytest.raises(ModelError, match="multiple of 128, got 100"):
        attention.attend(*case(100), "splash_interpret")


def test_bfloat16_accumulates_in_float32():
    q_bthc, k_btkc, v_btkc, segment_bt = case(256)
    low = [jnp.asarray(x, jnp.bfloat16) for x in (q_bthc, k_btkc, v_btkc)]
    actual = attention.attend(*low, segment_bt, "xla")
    assert actual.dtype == jnp.bfloat16
    expected = oracle(*(np.asarray(x, np.float32) for x in low), segment_bt)
    # Outputs are convex combinations of values up to 8: bfloat16 resolves 2**-8 of that.
    np.testing.assert_allclose(np.asarray(actual, np.float32), expected, atol=0.04)
