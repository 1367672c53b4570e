"""What we rely on in an SGLang server: expected of the fake always, of the real one if asked for.

The real one (0.5.23 on the CPU, small Qwen3) is slow to start: see tests/README.md.
"""

import asyncio
import concurrent.futures
import dataclasses
import time

import numpy as np
import pytest
import torch
import transformers
from fake_sglang import FakeSGLang
from flax import nnx
from real_sglang import RealSGLang, call

from spade_jax import config
from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling import replies
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.sglang import SGLangSampler

VOCABULARY = 320
MODEL = ModelConfig.from_hf(
    {
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "max_position_embeddings": 512,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-6,
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
    }
)


@pytest.fixture(scope="module")
def policies():
    return [build(MODEL, config.Model(), seed) for seed in range(3)]


@pytest.fixture(scope="module")
def folders(policies, tmp_path_factory, byte_tokenizer):
    """Our exporter's folders of the three policies."""
    place = tmp_path_factory.mktemp("policies")
    known = huggingface.with_tokens(MODEL, byte_tokenizer)
    for seed, policy in enumerate(policies):
        huggingface.save(place / str(seed), known, nnx.split(policy)[1], byte_tokenizer)
    return [str(place / str(seed)) for seed in range(3)]


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.slow)])
def url(request, folders, tmp_path_factory):
    if request.param == "fake":
        server = FakeSGLang(VOCABULARY, seconds_a_token=0.001)
        yield server.url
        server.close()
        return
    server = RealSGLang(folders[0], tmp_path_factory.mktemp("sglang") / "log")
    yield server.url
    server.kill()


def load(url, folder, label):
    """Weights of a folder; the server is not paused afterwards."""
    call(url, "/continue_generation", {})
    body = {"model_path": folder, "weight_version": label, "flush_cache": True}
    status, answer = call(url, "/update_weights_from_disk", body)
    assert (status, answer["success"]) == (200, True)
    assert call(url, "/model_info")[1]["weight_version"] == label


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def body(tokens, limit=8, rid="r", **params):
    return replies.body(tokens, SamplingParams(limit, **params), limit, rid, 0)


def generate(url, tokens, limit=8, rid="r", **params):
    status, answer = call(url, "/generate", body(tokens, limit, rid, **params))
    assert status == 200, answer
    return replies.read(answer, rid, limit, VOCABULARY)


@torch.no_grad()
def transformers_logp(folder, tokens, temperature):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    logp = torch.log_softmax(model(torch.tensor([tokens])).logits[0] / temperature, -1)
    return logp[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].numpy()


def test_log_probs_equal_transformers_at_the_sampling_temperature(url, folders):
    """Through two updates with our exporter's folders; truncation does not renormalise."""
    for number, folder in enumerate(folders):
        load(url, folder, f"v{number}")
        for index, params in enumerate(
            ({"temperature": 0.7}, {"temperature": 1.3, "top_p": 0.8}, {"temperature": 0.0})
        ):
            tokens = prompt(20, index)
            reply = generate(url, tokens, 12, **params)
            expected = transformers_logp(
                folder, [*tokens, *reply.tokens], params["temperature"] or 1.0
            )
            np.testing.assert_allclose(reply.logp, expected[len(tokens) - 1 :], atol=1e-4)
            assert (reply.finish, len(reply.tokens)) == ("length", 12)
            assert reply.labels == [f"v{number}"] * 12
            assert reply.prompt_tokens == 20


def test_a_stop_id_ends_the_reply_and_is_kept(url, folders):
    load(url, folders[0], "stops")
    stops = tuple(range(0, 256, 3))
    reply = generate(url, prompt(9), 64, temperature=1.0, stop_ids=stops)
    assert reply.finish == "stop"
    assert reply.tokens[-1] in stops
    assert not set(reply.tokens[:-1]) & set(stops)


def test_turns_reuse_their_prefix_until_weights_change(url, folders):
    load(url, folders[0], "a")
    tokens, cached = prompt(40), []
    for turn in range(3):
        reply = generate(url, tokens, 8)
        cached.append(reply.cached_tokens)
        tokens = [*tokens, *reply.tokens, *prompt(10, turn)]
    assert cached[0] == 0
    assert cached[1] >= 40
    assert cached[2] >= 58
    load(url, folders[0], "b")
    assert generate(url, tokens, 8).cached_tokens == 0


@pytest.mark.parametrize(
    "change",
    [{"max_new_tokens": -1}, {"temperature": -1.0}, {"bogus": 1}],
)
def test_wrong_parameters_are_400(url, change):
    wrong = body(prompt(5))
    wrong["sampling_params"].update(change)
    assert call(url, "/generate", wrong)[0] == 400
    assert call(url, "/generate", body([]))[0] == 400


def test_an_update_from_nowhere_fails_and_the_server_lives(url, folders):
    load(url, folders[0], "good")
    status, answer = call(
        url, "/update_weights_from_disk", {"model_path": "/nowhere", "weight_version": "bad"}
    )
    assert (status, answer["success"]) == (400, False)
    load(url, folders[0], "good again")
    generate(url, prompt(5))


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
def test_pause_update_continue_with_a_request_in_flight(url, folders, mode):
    load(url, folders[0], "before")
    with concurrent.futures.ThreadPoolExecutor() as threads:
        running = threads.submit(call, url, "/generate", body(prompt(9), 450, temperature=1.0))
        time.sleep(0.2)
        assert call(url, "/flush_cache", {})[0] == 400
        assert call(url, "/pause_generation", {"mode": mode})[0] == 200
        held = threads.submit(generate, url, prompt(5), 4, "held")
        update = {"model_path": folders[1], "weight_version": "after"}
        update["flush_cache"] = mode != "in_place"
        assert call(url, "/update_weights_from_disk", update)[0] == 200
        time.sleep(0.2)
        assert not held.done()
        assert call(url, "/continue_generation", {})[0] == 200
        reply = replies.read(running.result(120)[1], "r", 450, VOCABULARY)
        assert held.result(120).labels == ["after"] * 4
    if mode == "abort":
        assert reply.finish == "abort"
        assert len(reply.tokens) < 450
        assert set(reply.labels) <= {"before"}
    else:
        assert reply.finish == "length"
        first = reply.labels.index("after")
        assert reply.labels == ["before"] * first + ["after"] * (450 - first)


def test_our_sampler_on_it_agrees_with_our_own(url, policies, tmp_path, byte_tokenizer):
    """Greedy tokens and log-probs, and a group of sixteen on one prompt."""
    settings = config.Sampler(
        kind="sglang", urls=url, context=256, slots=4, cache_mb=4, timeout=120.0
    )
    native_settings = dataclasses.replace(settings, kind="native")
    call(url, "/continue_generation", {})
    greedy = [Request(prompt(30, i), SamplingParams(12, 0.0), f"g/{i}") for i in range(4)]
    group = [Request(prompt(30), SamplingParams(12, 0.7), f"e/{i}", f"e/{i}") for i in range(16)]
    with SGLangSampler(MODEL, byte_tokenizer, settings, "float32", 0, tmp_path) as sampler:
        for version, policy in enumerate(policies[:2]):
            sampler.update(nnx.split(policy)[1], version)
            native = NativeSampler(policy, native_settings, 0)
            theirs = asyncio.run(sampler.generate(greedy))
            ours = asyncio.run(native.generate(greedy))
            for left, right in zip(theirs, ours, strict=True):
                assert left.tokens == right.tokens
                np.testing.assert_allclose(left.logp, right.logp, atol=1e-4)
            drawn = asyncio.run(sampler.generate(group))
            assert {len(c.tokens) for c in drawn} == {12}
            assert len({tuple(c.tokens) for c in drawn}) > 8
            assert {c.version for c in drawn} == {version}
        assert sampler.metrics()["sampler/faults"] == 0
