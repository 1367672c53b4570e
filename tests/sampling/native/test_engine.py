"""What is drawn does not depend on what else goes on, as far as floating point allows."""

import asyncio
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native import batches, engine
from spade_jax.sampling.native.draw import noise_key
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.sampler import NativeSampler

SEED, CONTEXT, CLOSE = 7, 96, 1e-4
MODEL = ModelConfig(
    model_type="qwen3", vocabulary=61, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8,
    feed_forward=48, max_positions=256, tied=True, qk_norm=True, initial_std=0.5,
)  # fmt: skip
SETTINGS = config.Sampler(slots=4, context=CONTEXT, cache_mb=1, prefill_chunk=16, decode_steps=4)
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(0, 61, n).tolist() for n in (1, 15, 16, 17, 33, 40)]
REQUESTS = [
    Request(tokens, SamplingParams(12 + 5 * i, (1.0, 0.7, 0.0)[i % 3]), f"{i}/{j}", session)
    for i, tokens in enumerate(PROMPTS)
    for j, session in enumerate((None, None, f"session {i}"))
]


@pytest.fixture(scope="module")
def model():
    return build(MODEL, config.Model(), 0)


def crowded(monkeypatch, sampler):
    """Pages for hardly more than one context; gives a list of what was preempted."""
    scheduler, preempted = sampler._engine._scheduler, []
    size, original = scheduler.pages.size, scheduler._preempt
    monkeypatch.setattr(scheduler, "pages", Pages(CONTEXT // size + 2, size))
    monkeypatch.setattr(
        scheduler, "_preempt", lambda one: (preempted.append(one.cached), original(one))
    )
    return preempted


async def staggered(sampler, order):
    """Each asked for alone, while others are under way."""

    async def ask(place, request):
        await asyncio.sleep(0.002 * place)
        return (await sampler.generate([request]))[0]

    drawn = await asyncio.gather(*(ask(i, REQUESTS[n]) for i, n in enumerate(order)))
    return {REQUESTS[n].uid: one for n, one in zip(order, drawn, strict=True)}


@functools.partial(jax.jit, static_argnums=0)
def oracle_scores(graph, params, token_bt, key_c, temperature):
    """Perturbed scores [t, v] of the token after each position, and their log-probs."""
    model, position_t = nnx.merge(graph, params), jnp.arange(CONTEXT)
    h_btd = model.hidden(token_bt, position_t[None], jnp.ones_like(token_bt))
    scaled_tv = (h_btd @ model.head().T)[0] / jnp.where(temperature == 0, 1.0, temperature)

    def noise(position):
        key = jax.random.wrap_key_data(key_c, impl="threefry2x32")
        return jax.random.gumbel(jax.random.fold_in(key, position), (MODEL.vocabulary,))

    noise_tv = jnp.where(temperature == 0, 0.0, jax.vmap(noise)(position_t + 1))
    return scaled_tv + noise_tv, jax.nn.log_softmax(scaled_tv)


def scores(model, request, tokens):
    """Of the places of the completion ``tokens``."""
    whole = [*request.tokens, *tokens]
    row_bt = np.zeros((1, CONTEXT), np.int32)
    row_bt[0, : len(whole)] = whole
    how = noise_key(SEED, request.uid), request.params.temperature
    found = oracle_scores(*nnx.split(model), row_bt, *how)
    return [np.asarray(x)[len(request.tokens) - 1 : len(whole) - 1] for x in found]


def test_a_token_differs_only_where_the_best_two_are_close(model, monkeypatch):
    """Arrival order, company, page size, length of calls, preemption: log-probs agree to 1e-4."""
    sampler = NativeSampler(model, SETTINGS, SEED)
    together = asyncio.run(sampler.generate(REQUESTS))
    runs = [{request.uid: one for request, one in zip(REQUESTS, together, strict=True)}]
    runs.append(asyncio.run(staggered(sampler, range(len(REQUESTS))[::-1])))
    for module in (engine, batches):
        monkeypatch.setattr(module, "PAGE_SIZE", 4)
    other = dataclasses.replace(SETTINGS, slots=3, decode_steps=3, prefill_chunk=8)
    sampler = NativeSampler(model, other, SEED)
    preempted = crowded(monkeypatch, sampler)
    runs.append(asyncio.run(staggered(sampler, RNG.permutation(len(REQUESTS)))))
    assert any(preempted), "nothing that was under way was preempted"

    for request in REQUESTS:
        expected, *others = [run[request.uid] for run in runs]
        for one in (expected, *others):
            assert len(one.tokens) == request.params.max_tokens
            score_tv, logp_tv = scores(model, request, one.tokens)
            places = np.arange(len(one.tokens))
            np.testing.assert_allclose(one.logp, logp_tv[places, one.tokens], atol=CLOSE)
            assert (score_tv[places, one.tokens] > score_tv.max(-1) - CLOSE).all()
        for one in others:
            pairs = zip(expected.tokens, one.tokens, strict=True)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(one.tokens))
            np.testing.assert_allclose(one.logp[:same], expected.logp[:same], atol=CLOSE)
            if same < len(one.tokens):
                best = np.argsort(scores(model, request, one.tokens)[0][same])[-2:]
                assert {one.tokens[same], expected.tokens[same]} == set(best.tolist())
