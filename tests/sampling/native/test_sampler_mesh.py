"""Weights that a learner holds on a mesh reach the sampler's one device."""

import json
import os
import subprocess
import sys

SCRIPT = """
import asyncio, json, sys
import jax
jax.config.update("jax_num_cpu_devices", 4)
from flax import nnx
from spade_jax import config
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.sampler import NativeSampler

SHAPE = ModelConfig(model_type="qwen3", vocabulary=64, hidden=32, layers=2, heads=4, kv_heads=2,
                    head_dim=8, feed_forward=48, max_positions=64, tied=True, initial_std=0.2)
SETTINGS = config.Sampler(slots=2, context=32, cache_mb=1, prefill_chunk=16, decode_steps=4)
mesh = sharding.make_mesh(config.Mesh(fsdp=2, tensor=2))
request = Request([1, 2, 3], SamplingParams(12), "a")
answers = []
for on in (None, mesh):
    first, later = (build(SHAPE, config.Model(), seed, mesh=on) for seed in (0, 1))
    sampler = NativeSampler(first, SETTINGS, 0)
    drawn = asyncio.run(sampler.generate([request]))
    programs = sampler.compiled()
    sampler.update(nnx.state(later), 1)
    drawn += asyncio.run(sampler.generate([request]))
    assert sampler.compiled() == programs, "new weights compiled something"
    answers.append([[c.tokens, c.version] for c in drawn])
json.dump(answers, sys.stdout)
"""


def test_weights_on_a_mesh_sample_what_weights_on_one_device_do():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    alone, meshed = json.loads(done.stdout)
    assert meshed == alone
    assert [version for _, version in alone] == [0, 1]
    assert alone[0][0] != alone[1][0]  # the new weights say something else
