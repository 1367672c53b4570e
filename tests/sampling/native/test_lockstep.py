"""Samplers that agree before each call: two in one process, and in two of four devices each."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from flax import nnx

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.lockstep import LockstepSampler
from spade_jax.sampling.native.sampler import NativeSampler

COMMON = """
import asyncio, dataclasses, json, sys
import jax
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
import numpy as np
from flax import nnx
from spade_jax import config, processes
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.lockstep import LockstepSampler
from spade_jax.sampling.native.sampler import NativeSampler

SIZES = dict(vocabulary=64, hidden=32, layers=1, heads=8, head_dim=8, feed_forward=48,
             max_positions=512, initial_std=0.3)
SHAPES = {
    "dense": ModelConfig(model_type="qwen2", kv_heads=8, tied=True, attention_bias=True, **SIZES),
    "experts": ModelConfig(model_type="qwen3_moe", kv_heads=2, experts=8, experts_per_token=2,
                           expert_feed_forward=16, qk_norm=True, **SIZES),
}
SETTINGS = config.Sampler(slots=4, context=96, cache_mb=1, prefill_chunk=16, decode_steps=4,
                          replay_experts=True)

def prompt(length, seed):
    return np.random.default_rng(seed).integers(0, 64, length).tolist()

async def episode(sampler, name, told, turns=3):
    tokens = prompt(21, sum(map(ord, name)))
    for turn in range(turns):
        params = SamplingParams(9, 0.5 * (turn % 3), top_p=0.9 if turn else 1.0, stop_ids=(5,))
        request = Request(tokens, params, f"{name}/{turn}", name)
        (got,) = await sampler.generate([request])
        told[request.uid] = [got.tokens, got.logp, got.version, got.experts, got.finish_reason]
        tokens = tokens + got.tokens + prompt(7, turn)
    sampler.release(name)

async def cancelled(sampler, name):
    params = SamplingParams(70)
    requests = [Request(prompt(20, n), params, f"{name}/{n}") for n in range(6)]
    task = asyncio.create_task(sampler.generate(requests))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()

def models(shape, mesh=None):
    made = []
    for seed in (0, 1):  # one at a time: CPU devices mix up the messages of two programs
        made.append(build(shape, config.Model(), seed, mesh=mesh))
        jax.block_until_ready(nnx.state(made[-1]))
    return made
"""

ALONE = """
told = {}
for kind, shape in SHAPES.items():
    old, new = models(shape)
    sampler = NativeSampler(old, SETTINGS, 0)
    told[kind] = {}
    for name in ("a", "b", "c", "d"):
        asyncio.run(episode(sampler, name, told[kind]))
    sampler.update(nnx.state(new), 1)
    for name in ("e", "f"):
        asyncio.run(episode(sampler, name, told[kind], 1))
with open(sys.argv[1], "w") as file:
    json.dump(told, file)
"""

TOGETHER = """
index = int(sys.argv[1])
processes.join(sys.argv[2], 2, index)
settings = dataclasses.replace(SETTINGS, hosts_per_replica=2, deterministic=False)
mesh = sharding.make_mesh(config.Mesh(fsdp=8))

async def first(sampler, told):
    if index == 0:
        await asyncio.gather(episode(sampler, "a", told), episode(sampler, "b", told))
        bad, = await sampler.generate([Request([64], SamplingParams(3), "bad")])
        assert bad.finish_reason == "refused"
    else:
        await asyncio.sleep(0.3)
        await asyncio.gather(cancelled(sampler, "x"), episode(sampler, "c", told))
        await episode(sampler, "d", told)

told = {}
for kind, shape in SHAPES.items():
    peers = processes.replica(config.Processes(deadline=300.0), 2)
    peers._name += kind
    told[kind] = mine = {}
    old, new = models(shape, mesh)
    with LockstepSampler(old, settings, 0, peers) as sampler:
        asyncio.run(first(sampler, mine))  # the other may still be asking
        sampler.update(nnx.state(new), 1)
        if index == 1:  # the other only takes part
            asyncio.run(episode(sampler, "e", mine, 1))
            asyncio.run(episode(sampler, "f", mine, 1))
    engine = sampler._engine
    mine["free pages"] = engine._scheduler.pages.free == engine._scheduler.pages.count
    gate = engine._weights.layers[0]["gate"].get_value()
    mine["held here"] = sum(s.data.nbytes for s in gate.addressable_shards) / gate.nbytes

peers = processes.replica(config.Processes(deadline=300.0), 2)
peers._name += "failing"
told["failure"] = ""
try:
    with LockstepSampler(old, settings, 0, peers) as sampler:
        if index == 1:
            raise RuntimeError("no more tea")
        asyncio.run(cancelled(sampler, "y"))
        asyncio.run(episode(sampler, "g", {}, 1000))
except Exception as error:
    told["failure"] = f"{type(error).__name__}: {error}"
with open(sys.argv[3], "w") as file:
    json.dump(told, file)
processes.end(0)
"""


MODEL = ModelConfig(
    model_type="qwen2", vocabulary=61, hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8,
    feed_forward=16, max_positions=256, attention_bias=True, initial_std=0.5,
)  # fmt: skip
SETTINGS = config.Sampler(slots=3, context=96, cache_mb=1, prefill_chunk=4, decode_steps=4)


class InMemory:
    """Peers that share a table, in threads instead of processes."""

    members, count = (0,), 2

    def __init__(self, index, table, changed):
        self.index, self._table, self._changed = index, table, changed
        self._round = self._woken = 0

    def gather(self, what, value):
        self._say(json.dumps(value))
        with self._changed:
            keys = [(self._round, index) for index in range(self.count)]
            self._changed.wait_for(lambda: all(key in self._table for key in keys))
            said = [self._table[key] for key in keys]
        for index, text in enumerate(said):
            if isinstance(text, Exception):
                raise RuntimeError(f"process {index} failed: {text}")
        return [json.loads(text) for text in said]

    def fail(self, error):
        self._say(error)

    def ring(self):
        with self._changed:
            self._table["bell", self._woken + 1] = True
            self._changed.notify_all()

    def wait(self):
        with self._changed:
            self._changed.wait_for(lambda: ("bell", self._woken + 1) in self._table)
        self._woken += 1

    def _say(self, said):
        with self._changed:
            self._round += 1
            self._table[self._round, self.index] = said
            self._changed.notify_all()


@contextlib.contextmanager
def two(calls=None):
    """Samplers in lockstep, and a runner of one function for each; ``calls``: what they run."""
    model, table, changed = build(MODEL, config.Model(), 0), {}, threading.Condition()
    samplers = [LockstepSampler(model, SETTINGS, 7, InMemory(i, table, changed)) for i in range(2)]
    for sampler, ran in zip(samplers, calls or (), strict=False):
        record(sampler._engine, ran)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        yield lambda work: list(threads.map(work, samplers, range(2)))


def record(engine, ran):
    """Has every plan told to ``ran`` before it runs."""
    run = engine.run

    def told(plan):
        sequences = getattr(plan, "sequences", [])
        pages = [(one.request.uid, list(one.pages), len(one.tokens)) for one in sequences]
        ran.append((type(plan).__name__, getattr(plan, "pairs", None), pages))
        run(plan)

    engine.run = told


def request(uid, tokens, new=9, session=None):
    return Request(tokens, SamplingParams(new, 0.9), uid, session)


def prompt(length, seed):
    return np.random.default_rng(seed).integers(0, MODEL.vocabulary, length).tolist()


async def talk(sampler, name, pause=0.0):
    """Three turns of a session, each answered; all completions."""
    tokens, drawn = prompt(21, ord(name)), []
    for turn in range(3):
        await asyncio.sleep(pause)
        drawn += await sampler.generate([request(f"{name}/{turn}", tokens, session=name)])
        tokens = tokens + drawn[-1].tokens + prompt(7, turn)
    sampler.release(name)
    return drawn


async def called_off(sampler):
    """More requests than slots, cancelled while they are under way."""
    many = [request(f"off/{n}", prompt(20, n), new=70) for n in range(5)]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(sampler.generate(many), 0.02)
    live = list(sampler._engine._live)
    assert not [one for one in live if one.request.uid.startswith("off")]


def test_all_run_the_same_calls_whoever_asks():
    """Turns, cancellations and new weights, from both; none of it disturbs what is drawn."""
    calls = [], []
    other = build(MODEL, config.Model(), 1)

    def work(sampler, index):
        async def main():
            mine = [talk(sampler, "ab"[index]), talk(sampler, "cd"[index], 0.01)]
            drawn = await asyncio.gather(*mine, *map(called_off, [sampler][:index]))
            (bad,) = await sampler.generate([request("bad", [MODEL.vocabulary])])
            assert bad.finish_reason == "refused"
            return drawn[0] + drawn[1]

        with sampler:
            drawn = asyncio.run(main())
            sampler.update(nnx.state(other), 4)
            drawn += asyncio.run(talk(sampler, "e")) if index else []
        pages = sampler._engine._scheduler.pages
        assert pages.free == pages.count
        with pytest.raises(RuntimeError, match="the sampler is closed"):
            asyncio.run(sampler.generate([]))
        return drawn

    with two(calls) as run:
        first, second = run(work)
    assert calls[0] == calls[1]
    assert len(calls[0]) > 20
    alone = NativeSampler(build(MODEL, config.Model(), 0), SETTINGS, 7)
    expected = {name: asyncio.run(talk(alone, name)) for name in "abcd"}
    alone.update(nnx.state(other), 4)
    expected["e"] = asyncio.run(talk(alone, "e"))
    for drawn, names in ((first, "ac"), (second, "bde")):
        wanted = [one for name in names for one in expected[name]]
        assert [one.tokens for one in drawn] == [one.tokens for one in wanted]
        assert [one.version for one in drawn] == [one.version for one in wanted]
        for one, other_one in zip(drawn, wanted, strict=True):
            np.testing.assert_allclose(one.logp, other_one.logp, rtol=1e-5, atol=1e-5)


def test_who_fails_ends_the_others_requests_with_its_reason():
    def work(sampler, index):
        if index:
            with sampler:
                raise RuntimeError("no more tea")
        with sampler:
            asyncio.run(sampler.generate([request("a", prompt(9, 0), new=80) for _ in range(50)]))

    def failure(sampler, index):
        with pytest.raises(RuntimeError) as raised:
            work(sampler, index)
        return str(raised.value)

    with two() as run:
        assert run(failure) == ["process 1 failed: no more tea", "no more tea"]


def start(script, *arguments, log):
    return subprocess.Popen(
        [sys.executable, "-c", COMMON + script, *map(str, arguments)],
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
        },
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the one process told, and each of the two."""
    folder = tmp_path_factory.mktemp("lockstep")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    files = [folder / f"{name}.json" for name in ("alone", 0, 1)]
    logs = [file.with_suffix(".log") for file in files]
    running = [start(ALONE, files[0], log=logs[0])]
    running += [start(TOGETHER, n, address, files[n + 1], log=logs[n + 1]) for n in range(2)]
    for process, log in zip(running, logs, strict=True):
        assert process.wait() == 0, log.read_text()[-3000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_two_processes_sample_as_one_what_one_does(results, kind):
    """Turns of sessions, requests of both at different times, cancelled ones, new weights."""
    alone, *both = (result[kind] for result in results)
    assert [one.pop("free pages") for one in both] == [True, True]
    assert [one.pop("held here") for one in both] == [0.5, 0.5]
    assert {uid[0] for uid in both[0]} == {"a", "b"}
    assert {uid[0] for uid in both[1]} == {"c", "d", "e", "f"}
    together = both[0] | both[1]
    assert together.keys() == alone.keys()
    for uid, (tokens, logp, version, experts, reason) in alone.items():
        assert together[uid][0] == tokens, uid
        np.testing.assert_allclose(together[uid][1], logp, rtol=1e-5, atol=1e-5)
        assert together[uid][2:] == [version, experts, reason]
        assert version == (uid[0] in "ef")


@pytest.mark.slow
def test_an_error_of_one_ends_the_other_with_its_reason(results):
    _, other, own = (result.get("failure") for result in results)
    assert own == "RuntimeError: no more tea"
    assert other == "ProcessFault: process 1 failed: RuntimeError: no more tea"
