"""Drawing: exact probabilities, exact truncation, noise that knows nothing of the batch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from spade_jax.sampling.native.draw import Draw, _gumbel, _threshold, draw, noise_key

VOCABULARY = 12
LOGITS = np.random.default_rng(0).normal(0, 1.5, VOCABULARY).astype(np.float32)
DRAWS = 20000

draw_jit = jax.jit(draw)


def how(rows, temperature=1.0, top_p=1.0, min_p=0.0, top_k=0, seed=0):
    return Draw(
        key_bc=np.stack([noise_key(seed, str(row)) for row in range(rows)]),
        temperature_b=np.full(rows, temperature, np.float32),
        top_p_b=np.full(rows, top_p, np.float32),
        min_p_b=np.full(rows, min_p, np.float32),
        top_k_b=np.full(rows, top_k, np.int32),
        noisy=np.array(temperature > 0),
        truncated=np.array(top_p < 1 or min_p > 0 or top_k > 0),
    )


def test_the_noise_is_that_of_jax_random():
    key_bc = np.random.default_rng(0).integers(0, 2**32, (3, 2), np.uint32)
    position_b = np.array([0, 7, 2**31 - 1], np.int32)
    own_bv = jax.jit(_gumbel)(key_bc, position_b, np.zeros((3, 5000)))
    for key_c, position, own_v in zip(key_bc, position_b, own_bv, strict=True):
        key = jax.random.fold_in(jax.random.wrap_key_data(key_c, impl="threefry2x32"), position)
        np.testing.assert_array_equal(own_v, jax.random.gumbel(key, (5000,)))


def kept_by_transformers(logit_v, temperature, top_p, min_p, top_k):
    """Which tokens transformers keeps, in its order: temperature, top-k, top-p, min-p."""
    scores = torch.tensor(logit_v)[None] / temperature
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    return torch.isfinite(scores)[0].numpy()


@pytest.mark.parametrize("temperature", [0.7, 1.3])
@pytest.mark.parametrize(
    "truncation",
    [{}, {"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}, {"top_p": 0.9, "top_k": 6, "min_p": 0.05}],
    ids=str,
)
def test_frequencies_are_the_exact_probabilities(temperature, truncation):
    settings_of = how(DRAWS, temperature, **truncation)
    tokens, logp = draw_jit(np.tile(LOGITS, (DRAWS, 1)), np.full(DRAWS, 3), settings_of)
    full = scipy.special.softmax(LOGITS.astype(np.float64) / temperature)
    np.testing.assert_allclose(logp, np.log(full)[np.asarray(tokens)], atol=1e-5)
    kept = kept_by_transformers(
        LOGITS, temperature, **{"top_p": 1.0, "min_p": 0.0, "top_k": 0, **truncation}
    )
    count = np.bincount(tokens, minlength=VOCABULARY)
    assert not count[~kept].any()
    expected = full[kept] / full[kept].sum() * DRAWS
    assert scipy.stats.chisquare(count[kept], expected).pvalue > 1e-3


def test_positions_draw_independently():
    """One row at many positions is a fair sample too, and so are pairs of neighbours."""
    settings_of = how(1)
    position = jnp.arange(4000)
    tokens = jax.jit(
        jax.vmap(lambda p: draw(jnp.asarray(LOGITS)[None], p[None], settings_of)[0][0])
    )(position)
    full = scipy.special.softmax(LOGITS.astype(np.float64))
    count = np.bincount(tokens, minlength=VOCABULARY)
    assert scipy.stats.chisquare(count, full * len(position)).pvalue > 1e-3
    common = np.asarray(tokens) == np.argmax(full)
    table = np.histogram2d(common[:-1], common[1:], bins=2)[0]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(st.floats(-30, 30, width=32), min_size=20, max_size=20, unique=True),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 20, 99]),
)
def test_truncation_keeps_what_transformers_keeps(logits, temperature, top_p, min_p, top_k):
    """But for tokens within rounding of a limit."""
    logit_v = np.array(logits, np.float32)
    logp_v = np.asarray(jax.nn.log_softmax(jnp.asarray(logit_v) / temperature))
    threshold = threshold_jit(logp_v[None], how(1, temperature, top_p, min_p, top_k))
    kept = logp_v >= float(threshold[0])
    expected = kept_by_transformers(logit_v, temperature, top_p, min_p, top_k)
    differ = kept != expected
    if differ.any():
        order = np.sort(np.exp(logp_v.astype(np.float64)))[::-1]
        if top_k:
            order = order[:top_k] / order[:top_k].sum()
        near_top_p = np.abs(np.cumsum(order) - top_p).min() < 1e-6
        near_min_p = np.abs(logp_v - logp_v.max() - np.log(max(min_p, 1e-9))).min() < 1e-5
        assert near_top_p or near_min_p
    assert kept[np.argmax(logp_v)]


threshold_jit = jax.jit(_threshold)


def test_greedy_rows_take_the_likeliest_beside_rows_that_do_not():
    settings_of = dataclasses.replace(
        how(3), temperature_b=np.array([0.0, 1.0, 0.0], np.float32), truncated=np.array(True)
    )
    logits = np.random.default_rng(1).normal(size=(3, 50)).astype(np.float32)
    tokens, logp = draw_jit(logits, np.zeros(3, np.int32), settings_of)
    assert tokens[0] == logits[0].argmax()
    assert tokens[2] == logits[2].argmax()
    np.testing.assert_allclose(
        logp, scipy.special.log_softmax(logits, -1)[np.arange(3), tokens], atol=1e-5
    )


def test_noise_depends_on_seed_uid_and_position_alone():
    logits = np.zeros((4, 5000), np.float32)
    position = np.array([7, 7, 8, 7])
    keys = np.stack([noise_key(1, "a"), noise_key(1, "b"), noise_key(1, "a"), noise_key(1, "a")])
    tokens, _ = draw_jit(logits, position, dataclasses.replace(how(4), key_bc=keys))
    assert tokens[0] == tokens[3]
    assert len({int(t) for t in tokens}) == 3
    assert not (noise_key(1, "a") == noise_key(2, "a")).all()
    reversed_tokens, _ = draw_jit(
        logits, position[::-1], dataclasses.replace(how(4), key_bc=keys[::-1])
    )
    assert (reversed_tokens[::-1] == tokens).all()
