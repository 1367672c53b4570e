"""A sampler split over devices against one on one device, and weights on their way to it."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.sampling.native import replica

COMMON = """
import asyncio, dataclasses, json, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
import numpy as np
from flax import nnx
from spade_jax import config
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.forward import Forward
from spade_jax.sampling.native.replica import Replica, cut_on
from spade_jax.sampling.native.sampler import NativeSampler

SIZES = dict(vocabulary=64, hidden=32, heads=8, head_dim=8, feed_forward=48,
             max_positions=512, initial_std=0.3)
DENSE = ModelConfig(model_type="qwen2", layers=2, kv_heads=8, tied=True, attention_bias=True,
                    **SIZES)
MOE = ModelConfig(model_type="qwen3_moe", layers=2, kv_heads=2, experts=8, experts_per_token=2,
                  expert_feed_forward=16, qk_norm=True, **SIZES)
"""

SAMPLE = """
settings = config.Sampler(slots=4, context=64, cache_mb=1, prefill_chunk=16, decode_steps=4)
rng = np.random.default_rng(0)
requests = [
    Request(rng.integers(0, 64, n).tolist(), SamplingParams(16, temperature, top_p), f"{n}")
    for n, temperature, top_p in ((33, 0.0, 1.0), (3, 0.0, 1.0), (33, 1.0, 0.8))
]
answers = []
for shape, learner in ((DENSE, {"fsdp": 4, "tensor": 2}), (MOE, {"fsdp": 4, "expert": 2})):
    mesh = sharding.make_mesh(config.Mesh(**learner))
    for hosts, on in ((0, None), (1, mesh)):
        first, later = (build(shape, config.Model(), seed, mesh=on) for seed in (0, 1))
        sampler = NativeSampler(first, dataclasses.replace(settings, hosts_per_replica=hosts), 0)
        drawn = asyncio.run(sampler.generate(requests))
        programs = sampler.compiled()
        sampler.update(nnx.state(later), 1)
        drawn += asyncio.run(sampler.generate(requests))
        held = sampler._engine._pools[0][0], sampler._engine._weights.layers[0]["gate"].get_value()
        held = [max(x.addressable_shards, key=lambda s: s.data.nbytes).data.nbytes / x.nbytes
                for x in held]
        answers.append([[c.tokens, c.logp, c.version] for c in drawn])
        answers[-1] += [held, sampler.compiled() - programs]
json.dump(answers, sys.stdout)
"""

MOVE = """
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[3], 2, int(sys.argv[1]))
moe = dataclasses.replace(MOE, layers=8)
alone = Replica.of(moe, jax.local_devices()[:1])
graph, params = nnx.split(build(moe, config.Model(), 0))
want = alone.weights(Forward.of(graph, params, 16), params)
mine = Replica.of(moe, jax.local_devices())
results = []
for sizes in ({"fsdp": 8}, {"fsdp": 4, "tensor": 2}, {"data": 4, "expert": 2}):
    devices = jax.devices()
    if "expert" in sizes:  # the processes' devices by turns
        devices = [d for pair in zip(devices[:4], devices[4:]) for d in pair]
    mesh = sharding.make_mesh(config.Mesh(**sizes), devices)
    params = nnx.state(build(moe, config.Model(), 0, mesh=mesh))
    forward = Forward.of(graph, params, 16)
    weights = mine.weights(forward, params)
    same = jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), weights, want)
    alike, everywhere = mine.alike(params)
    at = jax.tree.leaves(alike)[0].sharding.mesh
    program = cut_on.lower(forward, at, everywhere, alike).compile()
    used = program.memory_analysis()
    whole = sum(x.nbytes for x in jax.tree.leaves(want))
    results.append({
        "equal": all(jax.tree.leaves(same)),
        "local": all(x.is_fully_addressable for x in jax.tree.leaves(weights)),
        "shapes": dict(mine.mesh.shape),
        "share": used.output_size_in_bytes / whole,
        "layer": sum(x.nbytes for x in jax.tree.leaves(want.layers[0])) / whole,
        "extra": used.temp_size_in_bytes / whole,
    })
with open(sys.argv[4], "w") as file:
    json.dump(results, file)
"""


def start(script, *arguments, **streams):
    return subprocess.Popen(
        [sys.executable, "-c", COMMON + script, *map(str, arguments)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": "--xla_backend_optimization_level=0"  # compiles faster
            # As on a TPU: what needs least memory comes first.
            " --xla_cpu_enable_concurrency_optimized_scheduler=false",
        },
        text=True,
        **streams,
    )


def test_eight_devices_sample_what_one_does():
    """Greedy and drawn, dense (8 x tensor) and with experts (4 x expert, 2 x tensor)."""
    process = start(SAMPLE, 0, 8, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, log = process.communicate()
    assert process.returncode == 0, log[-3000:]
    answers = json.loads(out)
    shares = {"dense": [1 / 8, 1 / 8], "experts": [1 / 2, 1 / 8]}  # of the cache, of a matrix
    for alone, split, share in zip(answers[::2], answers[1::2], shares.values(), strict=True):
        *drawn, held, compiled = split
        assert held == share
        assert compiled == 0, "new weights compiled something"
        for (tokens, logp, _), (expected, expected_logp, _) in zip(drawn, alone[:-2], strict=True):
            assert tokens == expected
            np.testing.assert_allclose(logp, expected_logp, atol=1e-4)
        assert [version for *_, version in drawn] == [0, 0, 0, 1, 1, 1]
        assert drawn[0][0] != drawn[3][0]  # the new weights say something else


@pytest.mark.slow
def test_each_host_gets_its_copy_by_one_collective(tmp_path):
    """Two processes of four devices: bit-equal, and little beside the copy is ever there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    files = [tmp_path / f"{index}.json" for index in range(2)]
    running = [
        start(MOVE, index, 4, address, file, stderr=file.with_suffix(".log").open("w"))
        for index, file in enumerate(files)
    ]
    for process, file in zip(running, files, strict=True):
        assert process.wait() == 0, file.with_suffix(".log").read_text()[-3000:]
    for results in (json.loads(file.read_text()) for file in files):
        assert len(results) == 3
        for result in results:
            assert result["equal"], result
            assert result["local"], result
            assert (result["shapes"]["expert"], result["shapes"]["tensor"]) == (2, 2)
            assert result["share"] < 0.35, result  # experts a quarter, attention a half
            assert result["extra"] < result["layer"] / 2, result


def test_heads_are_split_first_and_experts_take_the_rest():
    model = ModelConfig(
        model_type="qwen3_moe", vocabulary=64, hidden=32, layers=2, heads=8, kv_heads=4, head_dim=8,
        feed_forward=48, max_positions=512, experts=12, experts_per_token=2, expert_feed_forward=16,
    )  # fmt: skip
    assert replica.layout(model, 1) == (1, 1)
    assert replica.layout(model, 8) == (4, 2)
    assert replica.layout(model, 16) == (4, 4)
    with pytest.raises(ModelError, match=r"experts do not over the other 8.*that work: 1, 2, 3, 4"):
        replica.layout(model, 32)
