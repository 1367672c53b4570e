"""The formula against what a real sampler allocates."""

import jax
import pytest

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.native.memory import sampler_bytes
from spade_jax.sampling.native.sampler import NativeSampler

MODEL = ModelConfig(
    model_type="qwen3", vocabulary=64, hidden=16, layers=3, heads=4, kv_heads=2,
    head_dim=8, feed_forward=48, max_positions=256, tied=True, qk_norm=True,
)  # fmt: skip


@pytest.mark.parametrize("cache_mb", [1, 64])  # the second is more than the slots can fill
def test_equals_what_is_allocated(cache_mb):
    settings = config.Config(
        model=config.Model(compute_dtype="bfloat16"),
        sampler=config.Sampler(slots=4, context=2048, cache_mb=cache_mb),
    )
    sampler = NativeSampler(build(MODEL, settings.model, 0), settings.sampler, 0)
    expected = sampler_bytes(MODEL, settings)
    held = {
        name: sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
        for name, tree in (("weights", sampler._engine._weights), ("cache", sampler._engine._pools))
    }
    assert held["weights"] == expected["weights"]
    assert held["cache"] == pytest.approx(expected["cache"], rel=0.01)  # whole pages
