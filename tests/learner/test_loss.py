"""Golden values worked by hand in float64 from the formulas of docs/learner.md."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import config
from spade_jax.learner import loss
from spade_jax.learner.packing import Batch


def one_token(advantage=1.0, sampler_logp=-1.0, weight=1.0) -> Batch:
    values = [jnp.full((1, 1), x, jnp.int32) for x in (0, 0, 1, 0)]
    values += [jnp.full((1, 1), x, jnp.float32) for x in (weight, advantage, sampler_logp, 1.0)]
    return Batch(*values)


def value_and_slope(batch, logp, old_logp, entropy=0.0, reference=None, **changes):
    def f(logp_bt, entropy_bt):
        return loss.PolicyLoss.of(config.Learner(**changes))(
            logp_bt,
            jnp.full((1, 1), old_logp),
            entropy_bt,
            None if reference is None else jnp.full((1, 1), reference),
            batch,
        )

    value, slopes = jax.value_and_grad(f, (0, 1))(jnp.full((1, 1), logp), jnp.full((1, 1), entropy))
    return float(value), float(slopes[0][0, 0]), float(slopes[1][0, 0])


@pytest.mark.parametrize(
    ("advantage", "ratio", "surrogate", "slope"),
    [
        (2.0, 1.0, 2.0, 2.0),
        (2.0, 1.5, 2 * 1.28, 0.0),  # above 1 + high: held, no gradient
        (2.0, 0.5, 2 * 0.5, 2 * 0.5),  # below 1 - low with a gain: the minimum is unclipped
        (-2.0, 1.5, -2 * 1.5, -2 * 1.5),
        (-2.0, 0.5, -2 * 0.8, 0.0),  # below 1 - low with a loss: held
        (-2.0, 1.0, -2.0, -2.0),
    ],
)
def test_clip(advantage, ratio, surrogate, slope):
    logp, old_logp = -1.0, -1.0 - math.log(ratio)
    batch = one_token(advantage, sampler_logp=old_logp)  # it sampled: the importance weight is 1
    value, d_logp, _ = value_and_slope(batch, logp, old_logp)
    np.testing.assert_allclose((value, d_logp), (-surrogate, -slope), rtol=1e-5)


@pytest.mark.parametrize(
    ("logp", "sampler_logp", "weight"),
    [(-1.0, -1.0, 1.0), (-1.0, -1.5, math.exp(0.5)), (-1.0, -3.0, 2.0), (-3.0, -1.0, math.exp(-2))],
)
def test_importance_weight_is_truncated_and_not_differentiated(logp, sampler_logp, weight):
    """It is that of the policy before the first step on the batch."""
    batch = one_token(advantage=3.0, sampler_logp=sampler_logp)
    value, d_logp, _ = value_and_slope(batch, logp, old_logp=logp)
    np.testing.assert_allclose((value, d_logp), (-3 * weight, -3 * weight), rtol=1e-6)


@pytest.mark.parametrize("difference", [-1.0, -0.1, 0.0, 0.1, 2.0])
def test_k3(difference):
    batch = one_token(advantage=0.0, sampler_logp=-1.0)
    value, d_logp, _ = value_and_slope(
        batch, -1.0, -1.0, reference=-1.0 - difference, kl_coefficient=0.5
    )
    k3 = math.exp(-difference) - 1 + difference
    np.testing.assert_allclose(value, 0.5 * k3, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(d_logp, 0.5 * (1 - math.exp(-difference)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("difference", [-1e4, -300.0, -5.0, 300.0])
def test_k3_is_held_at_ten_without_nan(difference):
    batch = one_token(advantage=0.0, sampler_logp=-1.0)
    value, d_logp, _ = value_and_slope(
        batch, -1.0, -1.0, reference=-1.0 - difference, kl_coefficient=1.0
    )
    assert (value, d_logp) == (10.0, 0.0)


def test_k3_mean_estimates_kl():
    """Over samples from the policy, its mean is the exact KL (Schulman 2020)."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(6, 5.0)), rng.dirichlet(np.full(6, 5.0))
    k3 = np.asarray(loss.k3(jnp.log(jnp.asarray(p)), jnp.log(jnp.asarray(q))))
    np.testing.assert_allclose((p * k3).sum(), (p * np.log(p / q)).sum(), rtol=1e-5)


def test_entropy_bonus_lowers_the_loss():
    value, d_logp, d_entropy = value_and_slope(
        one_token(advantage=0.0), -1.0, -1.0, entropy=2.0, entropy_coefficient=0.1
    )
    np.testing.assert_allclose((value, d_logp, d_entropy), (-0.2, 0.0, -0.1), rtol=1e-6)


def test_loss_weight_scales():
    assert value_and_slope(one_token(weight=0.25), -1.0, -1.0) == pytest.approx((-0.25, -0.25, 0))


def test_supervised_loss_is_weighted_negative_log_prob():
    value, slope = jax.value_and_grad(loss.supervised_loss)(
        jnp.full((1, 1), -1.5), one_token(weight=0.5)
    )
    assert (float(value), float(slope[0, 0])) == (0.75, -0.5)
