"""The sampler's programs come out of the persistent compilation cache in a second process."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, collections, json, sys
import jax
from jax import monitoring

events = collections.Counter()
monitoring.register_event_listener(lambda event, **_: events.update([event]))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])  # as the entry points do
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # these take less than 1 s

from flax import nnx
from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.interface import Request, SamplingParams
from spade_jax.sampling.native.sampler import NativeSampler

model = build(ModelConfig(model_type="qwen3_moe", vocabulary=32, hidden=16, layers=1, heads=2,
                          kv_heads=1, head_dim=8, feed_forward=16, max_positions=64, experts=2,
                          experts_per_token=1, expert_feed_forward=16), config.Model(), 0)
settings = config.Sampler(slots=2, context=32, cache_mb=1, prefill_chunk=16, decode_steps=2,
                          replay_experts=True)
sampler = NativeSampler(model, settings, 0)
sampler.warm_up()
drawn = asyncio.run(sampler.generate([Request([1, 2, 3], SamplingParams(6), "a")]))
sampler.update(nnx.state(model), 1)
drawn += asyncio.run(sampler.generate([Request([1, 2, 3], SamplingParams(6), "a")]))
counts = [events["/jax/compilation_cache/" + name]
          for name in ("compile_requests_use_cache", "cache_hits", "cache_misses")]
json.dump([[one.tokens for one in drawn], sampler.compiled(), *counts], sys.stdout)
"""


def run(folder):
    """What was drawn, the sampler's programs, and of all programs: wanted, found, compiled."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_second_process_compiles_nothing_anew(tmp_path):
    drawn, programs, wanted, found, compiled = run(tmp_path)
    assert programs >= 6  # copy, experts, decode and prefill in two shapes each at least
    assert found + compiled == wanted
    assert compiled >= programs
    again = run(tmp_path)
    assert again == [drawn, programs, wanted, wanted, 0]
