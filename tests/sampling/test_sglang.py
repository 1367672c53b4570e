"""The sampler on servers that misbehave. Log-probs are compared with our own forward pass."""

import asyncio
import contextlib
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fake_sglang import FakeSGLang
from flax import nnx
from real_sglang import call

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling import sglang
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.sglang import NoServer, SGLangSampler

VOCABULARY = 61
MODEL = ModelConfig.from_hf(
    {
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 24,
        "max_position_embeddings": 512,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-6,
        "initializer_range": 0.5,
    }
)
SETTINGS = config.Sampler(
    kind="sglang", context=128, in_flight=8, timeout=60.0, update_timeout=60.0, patience=60.0
)


@pytest.fixture(scope="module")
def policies():
    """Three versions of the weights, as a learner would hand them over."""
    models = [build(MODEL, config.Model(), seed) for seed in range(3)]
    return [nnx.split(model) for model in models]


@pytest.fixture
def servers():
    """``servers(count, **how)``: that many fakes, closed at the end."""
    opened = []

    def make(count, **how):
        opened.extend(FakeSGLang(VOCABULARY, **how) for _ in range(count))
        return opened

    yield make
    for server in opened:
        server.close()


@pytest.fixture
def connect(tmp_path):
    """``connect(servers, **settings)``: an open sampler."""
    with contextlib.ExitStack() as stack:

        def open_(servers, **changes):
            urls = ",".join(server.url for server in servers)
            settings = dataclasses.replace(SETTINGS, urls=urls, **changes)
            return stack.enter_context(SGLangSampler(MODEL, None, settings, "float32", 7, tmp_path))

        yield open_


def requests(count, max_tokens=6, tag=0, **params):
    rng = np.random.default_rng(3)
    return [
        Request(
            rng.integers(0, VOCABULARY, 9).tolist(),
            SamplingParams(max_tokens, temperature=0.7, **params),
            f"u/{index}",
            session=f"s/{tag}/{index}",
        )
        for index in range(count)
    ]


def run(sampler, wanted):
    return asyncio.run(asyncio.wait_for(sampler.generate(wanted), 60))


@functools.partial(jax.jit, static_argnums=0)
def full_logp_of_row(graph, params, token_bt, segment_bt, temperature):
    model = nnx.merge(graph, params)
    h_btd = model.hidden(token_bt, jnp.arange(token_bt.shape[1])[None], segment_bt)
    logp_btv = jax.nn.log_softmax(h_btd @ model.head().T / temperature)
    return jnp.take_along_axis(logp_btv[0, :-1], token_bt[0, 1:, None], -1)[:, 0]


def full_logp(policy, tokens, temperature):
    """Log-probs of ``tokens[1:]`` by one forward pass, padded so that it compiles once."""
    row = np.zeros((2, 1, SETTINGS.context), np.int32)
    row[0, 0, : len(tokens)], row[1, 0, : len(tokens)] = tokens, 1
    return np.asarray(full_logp_of_row(*policy, *row, temperature))[: len(tokens) - 1]


def check(policy, wanted, completions):
    """Whole completions with true log-probs."""
    for request, completion in zip(wanted, completions, strict=True):
        assert completion.finish_reason == "length", completion
        assert len(completion.tokens) == request.params.max_tokens
        whole = [*request.tokens, *completion.tokens]
        expected = full_logp(policy, whole, request.params.temperature)
        np.testing.assert_allclose(completion.logp, expected[len(request.tokens) - 1 :], atol=1e-4)


def test_log_probs_are_those_of_the_weights_handed_over(servers, connect, policies):
    sampler = connect(servers(2))
    for version, policy in enumerate(policies):
        sampler.update(policy[1], version)
        wanted = requests(6)
        completions = run(sampler, wanted)
        check(policy, wanted, completions)
        assert {c.version for c in completions} == {version}
        assert not any(c.versions for c in completions)
    metrics = sampler.metrics()
    assert metrics["sampler/faults"] == 0
    assert metrics["weights/bytes"] > 4 * sum(x.size for x in jax.tree.leaves(policies[0][1]))


def test_a_server_that_was_left_paused_is_used(servers, connect, policies):
    """As by a trainer that was killed while the server loaded: the same command has to go on."""
    (server,) = servers(1)
    call(server.url, "/pause_generation", {"mode": "abort"})
    sampler = connect([server], patience=20.0)
    sampler.update(policies[0][1], 0)
    wanted = requests(2)
    check(policies[0], wanted, run(sampler, wanted))


def test_one_hopeless_server_takes_no_patience_from_the_others(servers, connect, policies):
    """It wants another key; the good one has a fault and is waited for."""
    bad, good = servers(1, key="another")[0], servers(1)[-1]
    sampler = connect([bad, good])
    sampler.update(policies[0][1], 0)
    good.faults["/generate"] += ["reset"]
    wanted = requests(2)
    check(policies[0], wanted, run(sampler, wanted))
    metrics = sampler.metrics()
    assert (metrics["sampler/servers"], metrics["sampler/faults/broken"]) == (1, 1)


@pytest.mark.parametrize("kept", [0.05, 30.0])
def test_a_connection_that_has_idled_is_not_used_again(
    servers, connect, policies, monkeypatch, kept
):
    """A real server closed one under a request, which counted as its fault."""
    monkeypatch.setattr(sglang, "KEPT", kept)
    (server,) = servers(1)
    sampler = connect([server])
    sampler.update(policies[0][1], 0)
    run(sampler, requests(1))
    before = set(server.peers)
    server.peers.clear()
    time.sleep(0.5)
    run(sampler, requests(1, tag=1))
    assert set(server.peers).isdisjoint(before) == (kept < 0.5)


def test_a_reply_ends_at_a_stop_id_and_keeps_it(servers, connect, policies):
    sampler = connect(servers(1))
    sampler.update(policies[0][1], 0)
    stops = tuple(range(0, VOCABULARY, 4))
    completions = run(sampler, requests(8, max_tokens=40, stop_ids=stops))
    assert {c.finish_reason for c in completions} == {"stop"}
    for completion in completions:
        assert completion.tokens[-1] in stops
        assert not set(completion.tokens[:-1]) & set(stops)
        assert len(completion.logp) == len(completion.tokens)


def test_every_parameter_is_sent(servers, connect, policies):
    (server,) = servers(1)
    sampler = connect([server])
    sampler.update(policies[0][1], 0)
    run(sampler, requests(1, top_p=0.9, top_k=5, min_p=0.1, stop_ids=(3,)))
    body = [body for path, body in server.calls if path == "/generate"][-1]
    sent = body["sampling_params"]
    expected = {"max_new_tokens": 6, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1}
    expected |= {"stop_token_ids": [3], "ignore_eos": False, "n": 1, "repetition_penalty": 1.0}
    assert sent.items() >= expected.items()
    assert body["return_logprob"]
    assert not body["stream"]
    run(sampler, requests(1))
    sent = server.calls[-1][1]["sampling_params"]
    assert (sent["top_k"], sent["top_p"], sent["min_p"], sent["ignore_eos"]) == (-1, 1.0, 0, True)


@pytest.mark.parametrize(
    ("tokens", "params", "reason"),
    [
        ([], {}, "no prompt"),
        ([1, VOCABULARY], {}, "outside the vocabulary"),
        ([-1], {}, "outside the vocabulary"),
        ([1], {"stop_ids": (VOCABULARY,)}, "outside the vocabulary"),
        ([1] * 128, {}, "no room"),
        ([1], {"max_tokens": 0}, "at least 1"),
    ],
)
def test_what_would_hurt_a_server_is_not_sent(servers, connect, policies, tokens, params, reason):
    (server,) = servers(1)
    sampler = connect([server])
    sampler.update(policies[0][1], 0)
    before = len(server.calls)
    request = Request(tokens, SamplingParams(**{"max_tokens": 4, **params}), "u")
    (completion,) = run(sampler, [request])
    assert completion.finish_reason == "refused"
    assert reason in completion.refusal
    assert len(server.calls) == before


def test_what_a_server_rejects_is_refused_and_nobody_leaves(servers, connect, policies):
    sampler = connect(servers(1))
    sampler.update(policies[0][1], 0)
    request = Request([1], SamplingParams(4, temperature=-1.0), "u")
    (completion,) = run(sampler, [request])
    assert completion.finish_reason == "refused"
    assert "temperature=-1.0" in completion.refusal
    metrics = sampler.metrics()
    assert (metrics["sampler/servers"], metrics["sampler/faults"]) == (1, 0)


GENERATE_FAULTS = {
    "500": "status",
    "503": "status",
    "reset": "broken",
    "reset in the middle": "broken",
    "hang": "timeout",
    "trickle": "timeout",
    "truncated": "json",
    "missing fields": "fields",
    "duplicate": "duplicate",
    "restart": "stale",
    "aborted without log-probs": None,  # the server's right: nothing is wrong with it
}


@pytest.mark.parametrize("fault", GENERATE_FAULTS)
def test_a_fault_while_sampling_costs_nothing_but_time(servers, connect, policies, fault):
    first, second = servers(2)
    sampler = connect([first, second], timeout=1.5 if fault in ("hang", "trickle") else 60.0)
    for version, policy in enumerate(policies[:1] if fault in ("hang", "trickle") else policies):
        sampler.update(policy[1], version)
        until(lambda: len(sampler._servers.ready) == 2)
        first.faults["/generate"] += [None, fault]
        wanted = requests(6, tag=version)
        completions = run(sampler, wanted)
        check(policy, wanted, completions)
        assert {c.version for c in completions} == {version}
        metrics = sampler.metrics()
        assert metrics["sampler/given_up"] == 0
        if kind := GENERATE_FAULTS[fault]:
            assert metrics[f"sampler/faults/{kind}"] >= 1
        else:
            assert metrics["sampler/continued"] == 1
            assert metrics["sampler/faults"] == 0


UPDATE_FAULTS = {
    "500": "status",
    "hang": "timeout",
    "failed untouched": "update",
    "failed but loaded": "update",
    "not advancing": "update",
}


@pytest.mark.parametrize("fault", UPDATE_FAULTS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_failed_update_takes_a_server_out_until_it_is_right(
    servers, connect, policies, fault, count
):
    """With another server the run goes on, without one it waits."""
    fakes = servers(count)
    sampler = connect(fakes, update_timeout=1.5 if fault == "hang" else 60.0)
    for version, policy in enumerate(policies[:1] if fault == "hang" else policies):
        fakes[0].faults["/update_weights_from_disk"] += [fault]
        sampler.update(policy[1], version)
        wanted = requests(4)
        completions = run(sampler, wanted)
        check(policy, wanted, completions)
        assert {c.version for c in completions} == {version}
        assert sampler.metrics()[f"sampler/faults/{UPDATE_FAULTS[fault]}"] >= 1
        until(lambda: sampler.metrics()["sampler/servers"] == count)
        assert len({fake.version for fake in fakes}) == 1


def until(condition):
    async def wait():
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.02)

    asyncio.run(wait())


def test_without_any_server_the_run_waits_and_then_says_why(servers, connect, policies):
    (server,) = servers(1)
    sampler = connect([server])
    sampler.update(policies[0][1], 0)
    sampler._servers._patience = 0.5
    server.stop()
    with pytest.raises(NoServer, match=r"no SGLang server is fit.*127\.0\.0\.1"):
        run(sampler, requests(2))
    sampler._servers._patience = 60.0
    server.start()
    until(lambda: sampler.metrics()["sampler/servers"] == 1)
    wanted = requests(2)
    check(policies[0], wanted, run(sampler, wanted))


def test_a_restarted_server_gets_the_weights_before_it_gets_work(
    servers, connect, policies, caplog
):
    fakes = servers(2)
    sampler = connect(fakes)
    sampler.update(policies[0][1], 0)
    fakes[0].restart()
    wanted = requests(8)
    check(policies[0], wanted, run(sampler, wanted))
    until(lambda: sampler.metrics()["sampler/servers"] == 2)
    calls = fakes[0].paths()
    loaded = len(calls) - calls[::-1].index("/update_weights_from_disk")
    assert calls[:loaded].count("/update_weights_from_disk") == 2
    assert calls[loaded : loaded + 3] == ["/model_info", "/continue_generation", "/generate"]
    assert caplog.messages[0].startswith(f"{fakes[0].url} leaves the pool: ")
    assert caplog.messages[-1] == f"{fakes[0].url} is in the pool"


def test_new_weights_in_the_middle_of_a_reply(servers, connect, policies):
    """What was sampled stays, the rest comes from the new weights, and every token says so."""
    (server,) = servers(1)
    sampler = connect([server])
    sampler.update(policies[0][1], 4)
    wanted, server.hold_at = requests(3, max_tokens=40), 10

    async def both():
        sampling = asyncio.create_task(sampler.generate(wanted))
        while server.holding < 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(sampler.update, policies[1][1], 5)
        return await sampling

    completions = asyncio.run(both())
    assert sampler.metrics()["sampler/continued"] == 3
    for request, completion in zip(wanted, completions, strict=True):
        assert len(completion.tokens) == 40
        assert completion.versions == [4] * 10 + [5] * 30
        assert completion.version == 5
        whole = [*request.tokens, *completion.tokens]
        for version, policy in ((4, policies[0]), (5, policies[1])):
            own = np.array(completion.versions) == version
            expected = full_logp(policy, whole, 0.7)[len(request.tokens) - 1 :]
            np.testing.assert_allclose(np.array(completion.logp)[own], expected[own], atol=1e-4)


def test_a_session_stays_where_its_prefix_is(servers, connect, policies):
    fakes = servers(2)
    sampler = connect(fakes)
    sampler.update(policies[0][1], 0)
    for _ in range(3):
        run(sampler, requests(4))
    sampler.release("s/0")
    sent = [[b["input_ids"] for p, b in fake.calls if p == "/generate"] for fake in fakes]
    for request in requests(4):
        counts = sorted(prompts.count(request.tokens) for prompts in sent)
        assert counts == [0, 3]
    assert sampler.metrics()["sampler/cached"] > 0.5


def test_a_cancelled_call_leaves_nothing_in_flight(servers, connect, policies):
    sampler = connect(servers(1, seconds_a_token=0.05))
    sampler.update(policies[0][1], 0)

    async def cancelled():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sampler.generate(requests(8, max_tokens=100)), 0.3)

    asyncio.run(cancelled())
    until(lambda: sampler._servers.workers[0].in_flight == 0)


def test_keys(servers, connect, policies, monkeypatch):
    fakes = servers(1, key="k", admin_key="a")
    with pytest.raises(NoServer, match="answers 401"):
        connect(fakes)
    monkeypatch.setenv(sglang.API_KEY, "k")
    monkeypatch.setenv(sglang.ADMIN_KEY, "a")
    sampler = connect(fakes)
    sampler.update(policies[0][1], 0)
    check(policies[0], requests(1), run(sampler, requests(1)))


def test_untempered_log_probs_are_refused(servers, connect, policies):
    sampler = connect(servers(1, raw=True))
    with pytest.raises(NoServer, match="SGLANG_RETURN_ORIGINAL_LOGPROB"):
        sampler.update(policies[0][1], 0)


def test_every_server_is_asked_for_its_convention(servers, connect, policies):
    """The one that leaves the temperature out stays out; the run goes on with the other."""
    good, bad = servers(1)[0], FakeSGLang(VOCABULARY, raw=True)
    try:
        sampler = connect([good, bad])
        sampler.update(policies[0][1], 0)
        wanted = requests(4)
        check(policies[0], wanted, run(sampler, wanted))
        until(lambda: sampler.metrics()["sampler/faults"] == 0)
        assert sampler.metrics()["sampler/servers"] == 1
    finally:
        bad.close()


def test_a_server_that_does_not_name_its_weights_is_refused(servers, connect):
    """sglang-jax is one: it generates, but takes no weights."""
    (server,) = servers(1)
    server.version = None
    with pytest.raises(NoServer, match="sglang-jax"):
        connect([server])


def test_a_router_generates_and_nothing_else(servers, connect, policies):
    """Also past a restart of the server behind it, which it does not notice."""
    (server,) = servers(1)
    *_, router = servers(1, behind=server)
    sampler = connect([server], router=router.url)
    sampler.update(policies[0][1], 0)
    for _ in range(2):
        wanted = requests(3)
        check(policies[0], wanted, run(sampler, wanted))
        server.restart()
    assert set(router.paths()) == {"/generate"}
    assert sampler.metrics()["sampler/faults/stale"] >= 1


def test_two_versions_are_kept(servers, connect, policies, tmp_path):
    (tmp_path / "weights/version-000009-of_an_earlier_process").mkdir(parents=True)
    (tmp_path / "weights/.version-000009-unfinished").mkdir(parents=True)
    sampler = connect(servers(1))
    for version, policy in enumerate(policies):
        sampler.update(policy[1], version)
    names = sorted(path.name[:14] for path in (tmp_path / "weights").iterdir())
    assert names == ["version-000001", "version-000002"]
