"""Experts recorded while sampling and replayed in the learner, against transformers' model.

The oracle is transformers' Qwen3-MoE with its router told which experts to take.
"""

import asyncio
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.learner.step import Learner
from spade_jax.models import huggingface
from spade_jax.sampling import experts
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.sampler import NativeSampler

VOCABULARY = 61
LAYERS, CHOSEN = 3, 2
SETTINGS = config.Sampler(
    slots=4, context=128, cache_mb=1, prefill_chunk=32, decode_steps=4, replay_experts=True
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The same model twice: transformers', and ours."""
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.Qwen3MoeConfig(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=LAYERS, head_dim=8,
            num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
            moe_intermediate_size=16, num_experts=8, num_experts_per_tok=CHOSEN,
            norm_topk_prob=True, initializer_range=0.3, max_position_embeddings=256,
        ),
        dtype=torch.float32,
    ).eval()  # fmt: skip
    folder = tmp_path_factory.mktemp("replay")
    theirs.save_pretrained(folder)
    return theirs, huggingface.load(str(folder), config.Model())


def forward(theirs, tokens, forced_tlk=None):
    """Log-probs of tokens[1:], and the experts of tokens[:-1]: its own, or those it is told."""
    chosen, originals = [], []

    def told(layer, gate, states):
        logits = states.reshape(-1, gate.hidden_dim) @ gate.weight.T
        probs = logits.softmax(-1)
        ids = probs.topk(CHOSEN).indices
        if forced_tlk is not None:
            ids = torch.tensor(forced_tlk[: len(ids), layer].astype(np.int64))
        chosen.append(ids)
        weights = probs.gather(-1, ids)
        return logits, weights / weights.sum(-1, keepdim=True), ids

    for index, layer in enumerate(theirs.model.layers):
        gate = layer.mlp.gate
        originals.append((gate, gate.forward))
        gate.forward = lambda states, i=index, g=gate: told(i, g, states)
    try:
        with torch.no_grad():
            logits = theirs(torch.tensor([tokens[:-1]])).logits[0]
    finally:
        for gate, original in originals:
            gate.forward = original
    logp = logits.log_softmax(-1)[torch.arange(len(tokens) - 1), tokens[1:]]
    return logp.numpy(), torch.stack(chosen, 1).numpy()


def sample(sampler, *requests):
    return asyncio.run(asyncio.wait_for(sampler.generate(requests), 900))


def request(tokens, uid, session=None, new=12):
    return Request(tokens, SamplingParams(new), uid, session)


def prompt(length, seed):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def check(theirs, tokens, completion):
    """All tokens but the last have the experts of a plain forward pass, in any order."""
    whole = [*tokens, *completion.tokens]
    logp, expected_tlk = forward(theirs, whole)
    np.testing.assert_allclose(completion.logp, logp[len(tokens) - 1 :], atol=1e-4)
    recorded_tlk = experts.decode(completion.experts)
    assert recorded_tlk.shape == (len(whole) - 1, LAYERS, CHOSEN)
    np.testing.assert_array_equal(np.sort(recorded_tlk, -1), np.sort(expected_tlk, -1))


def test_ids_are_those_of_a_plain_forward_pass(models, monkeypatch):
    """In chunks, shared by a group, kept over turns, and computed again after preemption."""
    theirs, ours = models
    sampler = NativeSampler(ours, SETTINGS, 0)
    monkeypatch.setattr(sampler._engine._scheduler, "pages", Pages(16, 16))
    preempted = []
    original = sampler._engine._scheduler._preempt
    monkeypatch.setattr(
        sampler._engine._scheduler, "_preempt", lambda s: (preempted.append(s.cached), original(s))
    )
    shared = prompt(41, 1)  # more than a chunk, and a part filled page
    asked = [request(shared, f"a{n}", f"a{n}", 30) for n in range(3)]
    asked.append(request(prompt(50, 2), "b", new=40))
    completions = sample(sampler, *asked)
    for one, completion in zip(asked, completions, strict=True):
        check(theirs, one.tokens, completion)
    assert any(cached > 41 for cached in preempted)
    later = [*shared, *completions[0].tokens, *prompt(9, 3)]
    (turn,) = sample(sampler, request(later, "turn", "a0"))
    check(theirs, later, turn)


@pytest.mark.slow
def test_nothing_compiles_after_warm_up(models):
    sampler = NativeSampler(models[1], SETTINGS, 0)
    sampler.warm_up()
    programs = sampler.compiled()
    sample(sampler, *(request(prompt(30 * n + 1, n), f"{n}") for n in range(3)))
    assert sampler.compiled() == programs


def test_without_replay_nothing_is_recorded(models):
    sampler = NativeSampler(models[1], dataclasses.replace(SETTINGS, replay_experts=False), 0)
    (completion,) = sample(sampler, request(prompt(5, 0), "a"))
    assert completion.experts == ""
    assert experts.decode(completion.experts) is None
    assert all(len(pool) == 2 for pool in sampler._engine._pools)


def shaken(model):
    """The same model with another router: many tokens would get other experts."""
    graph, params = nnx.split(model)
    params = jax.tree.map(jnp.copy, params)
    router = params["layers"]["router"]
    noise = jax.random.normal(jax.random.key(5), router.get_value().shape)
    params["layers"]["router"] = router.replace(router.get_value() + 0.2 * noise)
    return nnx.merge(graph, params)


def test_the_learner_takes_the_experts_of_the_sampler(models, tmp_path):
    """Two rows of two sequences in a learner with another router, against the told oracle.

    The learner's loss is the mean of -advantage min(exp(logp - sampler_logp), cap).
    """
    _, ours = models
    other = shaken(ours)
    sampler = NativeSampler(ours, SETTINGS, 0)
    asked = [request(prompt(length, length), f"{length}") for length in (20, 33, 7)]
    completions = sample(sampler, *asked)
    huggingface.save(tmp_path / "other", other.config, nnx.state(other), None, "float32")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "other", dtype=torch.float32
    ).eval()
    trajectories, expected, unforced, moved = [], [], [], 0
    for one, completion in zip(asked, completions, strict=True):
        tokens, start = [*one.tokens, *completion.tokens], len(one.tokens)
        forced_tlk = experts.decode(completion.experts)
        trajectories.append(
            Trajectory(
                tokens,
                [place >= start for place in range(len(tokens))],
                [0.0] * start + completion.logp,
                advantage=1.0,
                expert_tlk=forced_tlk,
            )
        )
        own_logp, own_tlk = forward(theirs, tokens)
        moved += int((np.sort(own_tlk, -1) != np.sort(forced_tlk, -1)).any(-1).sum())
        told_logp, told_tlk = forward(theirs, tokens, forced_tlk)
        np.testing.assert_array_equal(told_tlk, forced_tlk)
        for gathered, logp in ((expected, told_logp), (unforced, own_logp)):
            gap = logp[start - 1 :] - np.asarray(completion.logp)
            gathered.append(-np.minimum(np.exp(gap), 2.0).mean())
    assert moved > 20, "the router must have changed for this to say anything"
    settings = config.Learner(row_length=64, rows=2, learning_rate=0.0)
    loss = Learner(other, settings, ("agent",)).update(trajectories)["loss"]
    assert loss == pytest.approx(np.mean(expected), abs=1e-5)
    without = [dataclasses.replace(t, expert_tlk=None) for t in trajectories]
    own = Learner(other, settings, ("agent",)).update(without)["loss"]
    assert own == pytest.approx(np.mean(unforced), abs=1e-5)
    assert not math.isclose(own, loss, abs_tol=1e-3)
    # Of one of them nothing is known: the router chooses for it alone.
    mixed = [without[0], *trajectories[1:]]
    partly = Learner(other, settings, ("agent",)).update(mixed)["loss"]
    assert partly == pytest.approx(np.mean([unforced[0], *expected[1:]]), abs=1e-5)


def test_ids_survive_as_text():
    ids = np.arange(300, dtype=np.int16).reshape(50, 3, 2)
    for each in (ids % 128, ids):
        np.testing.assert_array_equal(experts.decode(experts.encode(each)), each)
