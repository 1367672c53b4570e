"""The engine against a full forward pass of the same model."""

import asyncio
import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native import batches
from spade_jax.sampling.native.forward import Forward
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.native.scheduler import DecodePlan, PrefillPlan

VOCABULARY = 61
DENSE = {
    "model_type": "qwen3",
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 8192,
    "rope_theta": 1e4,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.5,  # far from uniform: tokens have a clear order
}
SETTINGS = config.Sampler(slots=4, context=320, cache_mb=1, prefill_chunk=32, decode_steps=4)


@pytest.fixture(scope="module")
def shared():
    """One model and engine for the tests that need no other settings."""
    model = build(ModelConfig.from_hf(DENSE), config.Model(), 0)
    return model, NativeSampler(model, SETTINGS, 7)


def engine(model, **changes):
    return NativeSampler(model, dataclasses.replace(SETTINGS, **changes), 7)


def run(sampler, *requests):
    return asyncio.run(asyncio.wait_for(sampler.generate(requests), 900))


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def request(tokens, uid="u", session=None, **params):
    return Request(tokens, SamplingParams(**{"max_tokens": 8, **params}), uid, session)


@functools.partial(jax.jit, static_argnums=0)
def full_logp_of_row(graph, params, token_bt, segment_bt, temperature):
    model = nnx.merge(graph, params)
    h_btd = model.hidden(token_bt, jnp.arange(token_bt.shape[1])[None], segment_bt)
    logp_btv = jax.nn.log_softmax(h_btd @ model.head().T / temperature)
    return jnp.take_along_axis(logp_btv[0, :-1], token_bt[0, 1:, None], -1)[:, 0]


def full_logp(model, tokens, temperature=1.0):
    """Log-probs of tokens[1:] by one forward pass, padded so that it compiles once."""
    row = np.zeros((2, 1, SETTINGS.context), np.int32)
    row[0, 0, : len(tokens)], row[1, 0, : len(tokens)] = tokens, 1
    return np.asarray(full_logp_of_row(*nnx.split(model), *row, temperature))[: len(tokens) - 1]


def check_logp(model, tokens, completion, temperature=1.0):
    whole = [*tokens, *completion.tokens]
    expected = full_logp(model, whole, temperature)[len(tokens) - 1 :]
    np.testing.assert_allclose(completion.logp, expected, atol=1e-4)


@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.7}, {"top_k": 3}, {"min_p": 0.2}])
def test_log_probs_are_at_the_sampling_temperature_whatever_the_truncation(shared, truncation):
    model, sampler = shared
    tokens = prompt(37, 1)
    for temperature in (0.6, 1.0, 1.7):
        (completion,) = run(sampler, request(tokens, temperature=temperature, **truncation))
        check_logp(model, tokens, completion, temperature)


def test_turns_of_a_session_prefill_only_what_is_new(shared, monkeypatch):
    model, sampler = shared
    tokens, prefilled = prompt(100, 2), []
    original = sampler._engine._run_prefill
    monkeypatch.setattr(
        sampler._engine, "_run_prefill", lambda p: (prefilled.append(sum(p.counts)), original(p))
    )
    for turn in range(4):
        (completion,) = run(sampler, request(tokens, f"e/{turn}", session="e", max_tokens=11))
        check_logp(model, tokens, completion)
        tokens = tokens + completion.tokens + prompt(40, turn)
    assert sum(prefilled[:4]) == 99
    # The stop token and 40 new ones, the last of which is decoded.
    assert sum(prefilled) == 99 + 3 * 40
    sampler.release("e")


def test_a_session_that_changes_its_past_is_right_too(shared):
    model, sampler = shared
    tokens = prompt(90, 3)
    run(sampler, request(tokens, session="s"))
    for cut in (50, 3, 0):
        other = tokens[:cut] + prompt(60, 4)
        (completion,) = run(sampler, request(other, session="s"))
        check_logp(model, other, completion)
    sampler.release("s")


def test_sampled_tokens_do_not_depend_on_the_batch(shared):
    """Alone, in a crowd, in another order: the same tokens for the same uid and seed."""
    model, sampler = shared
    mine = request(prompt(50, 5), "mine", max_tokens=25)
    (alone,) = run(sampler, mine)
    crowd = [request(prompt(n, n), f"other {n}", temperature=0.5, top_p=0.9) for n in range(1, 12)]
    assert run(sampler, *crowd[:5], mine, *crowd[5:])[5].tokens == alone.tokens
    assert run(sampler, mine, *crowd)[0].tokens == alone.tokens
    check_logp(model, mine.tokens, alone)
    again = NativeSampler(model, SETTINGS, 7)
    assert run(again, mine)[0] == alone
    other_seed = NativeSampler(model, SETTINGS, 8)
    assert run(other_seed, mine)[0].tokens != alone.tokens
    assert run(sampler, request(mine.tokens, "second", max_tokens=25))[0].tokens != alone.tokens


def test_the_same_requests_give_the_same_bits(shared):
    model, _ = shared
    requests = [request(prompt(10 * n + 1, n), str(n), max_tokens=30) for n in range(9)]
    first, second = (run(NativeSampler(model, SETTINGS, 7), *requests) for _ in range(2))
    assert first == second


def test_stop_ids_end_a_completion_and_are_part_of_it(shared):
    _, sampler = shared
    tokens = prompt(20, 6)
    (free,) = run(sampler, request(tokens, max_tokens=30))
    stop = free.tokens[9]
    first = free.tokens.index(stop)
    (stopped,) = run(sampler, request(tokens, max_tokens=30, stop_ids=(60, stop)))
    expected = min(first, free.tokens.index(60) if 60 in free.tokens else 30)
    assert stopped.tokens == free.tokens[: expected + 1]
    assert stopped.finish_reason == "stop"
    assert len(stopped.logp) == len(stopped.tokens)


def test_a_completion_ends_where_the_context_does(shared):
    model, sampler = shared
    tokens = prompt(SETTINGS.context - 3, 7)
    (completion,) = run(sampler, request(tokens, max_tokens=50))
    assert len(completion.tokens) == 3
    assert completion.finish_reason == "length"
    check_logp(model, tokens, completion)


def test_bad_requests_are_refused_one_by_one(shared):
    _, sampler = shared
    good = request(prompt(5), "good")
    bad = [
        (request([]), "no prompt tokens"),
        (request(prompt(SETTINGS.context)), "leave no room"),
        (request([1, VOCABULARY]), f"token id {VOCABULARY} outside"),
        (request([-1]), "token id -1 outside"),
        (request([1], temperature=float("nan")), "temperature=nan"),
        (request([1], temperature=-0.1), "temperature=-0.1"),
        (request([1], top_p=0.0), "top_p=0.0"),
        (request([1], top_p=float("nan")), "top_p=nan"),
        (request([1], min_p=1.5), "min_p=1.5"),
        (request([1], top_k=-1), "top_k=-1"),
        (request([1], max_tokens=0), "max_tokens=0"),
        (request([1], stop_ids=tuple(range(17))), "17 stop ids"),
    ]
    (alone,) = run(sampler, good)
    first, *refused, last = run(sampler, good, *(r for r, _ in bad), good)
    assert first.tokens == last.tokens == alone.tokens
    for completion, (_, reason) in zip(refused, bad, strict=True):
        assert completion.finish_reason == "refused"
        assert completion.tokens == []
        assert reason in completion.refusal


def test_idle_prefixes_are_evicted_and_then_sequences_preempted(shared, monkeypatch):
    """Far more tokens than the cache holds: everything is served, and right."""
    model, _ = shared
    sampler = engine(model)
    monkeypatch.setattr(sampler._engine._scheduler, "pages", Pages(20, 16))
    preempted = []
    original = sampler._engine._scheduler._preempt
    monkeypatch.setattr(
        sampler._engine._scheduler, "_preempt", lambda s: (preempted.append(s.cached), original(s))
    )
    talks = {name: prompt(70, ord(name)) for name in "abcdef"}
    for turn in range(2):
        requests = [
            request(tokens, f"{name}/{turn}", session=name, max_tokens=40)
            for name, tokens in talks.items()
        ]
        for item, completion in zip(requests, run(sampler, *requests), strict=True):
            assert len(completion.tokens) == 40
            check_logp(model, item.tokens, completion)
            talks[item.session] = [*item.tokens, *completion.tokens, 1, 2, 3]
    assert any(cached > 70 for cached in preempted)
    for name in talks:
        sampler.release(name)
    assert sampler._engine._scheduler.pages.free == 20


def test_update_drops_prefixes_stamps_versions_and_owns_its_weights(shared):
    model, _ = shared
    sampler = engine(model)
    other = other_weights(model)
    tokens = prompt(40, 8)
    (before,) = run(sampler, request(tokens, session="s"))
    params = jax.tree.map(jnp.copy, nnx.state(other))
    sampler.update(params, 5)
    for leaf in jax.tree.leaves(params):
        leaf.delete()  # as a learner that donates them does
    (after,) = run(sampler, request([*tokens, *before.tokens], session="s"))
    assert (before.version, after.version) == (0, 5)
    check_logp(other, [*tokens, *before.tokens], after)


def other_weights(model):
    graph, params = nnx.split(model)
    return nnx.merge(graph, jax.tree.map(lambda x: x[..., ::-1] * 1.1, params))


async def updated_in_flight(sampler, new, mine):
    """Completions of ``mine``, asked for twice: before new weights come and just after."""
    early = asyncio.create_task(sampler.generate(mine))
    scheduler = sampler._engine._scheduler
    while not scheduler._running or not scheduler._running[0].logp:
        await asyncio.sleep(0.001)
    sampler.update(nnx.state(new), 5)
    late = asyncio.create_task(sampler.generate(mine))
    return await early, await late


def in_flight():
    return [
        request(prompt(40 * n + 1, n), f"u{n}", session=f"s{n}", max_tokens=90) for n in range(3)
    ]


def test_requests_in_flight_finish_on_the_old_weights(shared):
    model, _ = shared
    other = other_weights(model)
    early, late = asyncio.run(updated_in_flight(engine(model), other, in_flight()))
    for mine, old, new in zip(in_flight(), early, late, strict=True):
        assert (set(old.versions), set(new.versions)) == ({0}, {5})
        check_logp(model, mine.tokens, old)
        check_logp(other, mine.tokens, new)


def test_requests_in_flight_continue_on_the_new_weights(shared):
    """Each token is drawn from the model of its version given all before it."""
    model, _ = shared
    other = other_weights(model)
    sampler = engine(model, updates="continue")
    early, late = asyncio.run(updated_in_flight(sampler, other, in_flight()))
    for mine, mixed, new in zip(in_flight(), early, late, strict=True):
        whole, start = [*mine.tokens, *mixed.tokens], len(mine.tokens) - 1
        by_version = {0: full_logp(model, whole)[start:], 5: full_logp(other, whole)[start:]}
        expected = [by_version[version][i] for i, version in enumerate(mixed.versions)]
        np.testing.assert_allclose(mixed.logp, expected, atol=1e-4)
        assert mixed.versions == sorted(mixed.versions)
        assert len(mixed.versions) == 90
        assert mixed.version == 5
        check_logp(other, mine.tokens, new)
    assert early[0].versions[0] == 0


def test_a_group_shares_its_prompt_and_its_members_differ(shared, monkeypatch):
    """More members than slots, sessions that go on, and a past that changes in a shared page."""
    model, _ = shared
    sampler = engine(model)
    prefilled = []
    original = sampler._engine._run_prefill
    monkeypatch.setattr(
        sampler._engine, "_run_prefill", lambda p: (prefilled.append(sum(p.counts)), original(p))
    )
    tokens = prompt(59, 11)
    group = [request(tokens, f"g{n}", session=f"g{n}", max_tokens=5 + 4 * n) for n in range(7)]
    completions = run(sampler, *group)
    assert sum(prefilled) == 58
    for completion in completions:
        check_logp(model, tokens, completion)
    assert len({tuple(c.tokens[:5]) for c in completions}) > 4
    turns = [
        request(tokens[: 20 if n == 2 else 59] + completion.tokens + prompt(9, n), f"t{n}", f"g{n}")
        for n, completion in enumerate(completions)
    ]
    for turn, completion in zip(turns, run(sampler, *turns), strict=True):
        check_logp(model, turn.tokens, completion)


@pytest.mark.parametrize("ticks", [0, 1, 3, 10])
def test_cancelling_frees_the_memory_and_disturbs_nobody(shared, ticks):
    model, sampler = shared
    before = sampler._engine._scheduler.pages.free
    mine = request(prompt(30, 9), "mine", max_tokens=40)

    async def main():
        doomed = asyncio.create_task(
            sampler.generate([request(prompt(60, n), str(n), max_tokens=200) for n in range(6)])
        )
        stays = asyncio.create_task(sampler.generate([mine]))
        for _ in range(ticks):
            await asyncio.sleep(0.005)
        doomed.cancel()
        (completion,) = await stays
        return completion

    completion = asyncio.run(main())
    check_logp(model, mine.tokens, completion)
    assert completion.tokens == run(sampler, mine)[0].tokens
    assert sampler._engine._scheduler.pages.free == before


def test_a_loop_that_closes_leaves_the_engine_usable(shared):
    model, sampler = shared

    async def main():
        task = asyncio.create_task(sampler.generate([request(prompt(60), max_tokens=400)]))
        await asyncio.sleep(0.02)
        assert not task.done()

    asyncio.run(main())
    tokens = prompt(12, 10)
    (completion,) = run(sampler, request(tokens))
    check_logp(model, tokens, completion)


def test_nothing_compiles_after_warm_up(shared):
    sampler = engine(shared[0])
    sampler.warm_up()
    compiled = sampler.compiled()
    for turn, count in enumerate((1, 3, 4, 9)):
        run(
            sampler,
            *(
                request(
                    prompt(60 * n + 1, n),
                    f"{turn}/{n}",
                    session=str(n),
                    temperature=0.5 * (n % 3),
                    top_p=1.0 - 0.1 * (n % 2),
                )
                for n in range(count)
            ),
        )
    assert sampler.compiled() == compiled


def test_a_cache_smaller_than_one_context_is_refused(shared):
    with pytest.raises(ValueError, match="raise it to 2 or lower the context"):
        engine(shared[0], context=8000)


def test_one_process_is_no_replica_of_two(shared):
    with pytest.raises(ValueError, match="one process samples here; set it to 0 or 1"):
        engine(shared[0], hosts_per_replica=2)


def test_log_probs_past_position_4096(shared):
    """In chunks, shared by a group, and in a later turn."""
    model, _ = shared
    sampler = engine(model, context=4608, cache_mb=3, prefill_chunk=1024)
    tokens = prompt(4150, 12)
    first = run(sampler, request(tokens, "a", session="a"), request(tokens, "b"))
    later_tokens = tokens + first[0].tokens + prompt(30, 13)
    (later,) = run(sampler, request(later_tokens, "c", session="a"))
    for before, completion in ((tokens, first[0]), (tokens, first[1]), (later_tokens, later)):
        whole = [*before, *completion.tokens]
        row = np.zeros((2, 1, 4608), np.int32)
        row[0, 0, : len(whole)], row[1, 0, : len(whole)] = whole, 1
        expected = full_logp_of_row(*nnx.split(model), *row, 1.0)[len(before) - 1 : len(whole) - 1]
        np.testing.assert_allclose(completion.logp, expected, atol=1e-4)


def test_no_call_copies_a_whole_pool(shared):
    """Donated pools are written where they lie, as the compiled programs say."""
    sampler = shared[1]
    shapes, pools = sampler._engine._scheduler.shapes, sampler._engine._pools
    pages = np.zeros(4, np.int32)
    count = sampler._engine._scheduler.pages.count
    prefill = batches.prefill(PrefillPlan([], [], *shapes.prefills()[-1]), count)
    decode = batches.decode(DecodePlan([], *shapes.decodes()[-1]), SETTINGS.decode_steps, count)
    arguments = sampler._engine._forward, sampler._engine._weights, pools
    programs = {
        "copy": Forward.copy.lower(sampler._engine._forward, pools, pages, pages),
        "prefill": Forward.prefill.lower(*arguments, prefill),
        "decode": Forward.decode.lower(*arguments, decode),
    }
    size = pools[0][0].size
    for name, program in programs.items():
        text = program.compile().as_text()
        copied = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", text)
        assert "input_output_alias" in text, name
        assert size not in [np.prod([int(n) for n in shape.split(",")]) for shape in copied], name
