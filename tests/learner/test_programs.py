"""What the learner's programs are, before any compiler: seen in the text they are lowered to."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from spade_jax import config
from spade_jax.learner.programs import Programs
from spade_jax.models import sharding
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract

ROWS, LENGTH, VOCABULARY = 2, 2048, 40960  # 2 x 20,480: two blocks of the head
MODEL = ModelConfig(
    model_type="qwen3_moe", vocabulary=VOCABULARY, hidden=64, layers=3, heads=4, kv_heads=2,
    head_dim=16, feed_forward=0, max_positions=LENGTH, qk_norm=True, experts=4,
    experts_per_token=2, expert_feed_forward=32,
)  # fmt: skip
SETTINGS = config.Config(
    learner=config.Learner(rows=ROWS, row_length=LENGTH, kl_coefficient=0.1, steps=2)
)


def sizes(text):
    """Elements of every array of a StableHLO program."""
    found = re.findall(r"tensor<((?:\d+x)+)[a-z]\w*>", text)
    return [math.prod(int(n) for n in shape.split("x")[:-1]) for shape in found]


@pytest.fixture(scope="module")
def programs():
    mesh = sharding.make_mesh(config.Mesh(), jax.devices()[:1])
    return Programs.lower(MODEL, SETTINGS, mesh)


def test_no_array_holds_the_logits_of_all_predictions(programs):
    """With the KL's pass, the entropy and several steps; the largest are a chunk and a block."""
    logits = ROWS * LENGTH * VOCABULARY
    for name in ("accumulate", "add_group", "apply"):
        assert max(sizes(getattr(programs, name).as_text())) < logits / 8, name


def test_that_test_would_see_them():
    mesh = sharding.make_mesh(config.Mesh(), jax.devices()[:1])
    graph, params = nnx.split(abstract(MODEL, SETTINGS.model))
    ids = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)

    def logits(params, ids):
        policy = nnx.merge(graph, params)
        return jax.nn.log_softmax(policy.hidden(ids, ids, ids) @ policy.head().T)

    with jax.set_mesh(mesh):
        text = jax.jit(logits).lower(params, ids).as_text()
    assert max(sizes(text)) == ROWS * LENGTH * VOCABULARY


def test_layers_are_a_loop_whose_program_does_not_grow(programs):
    deep = dataclasses.replace(MODEL, layers=30)
    mesh = sharding.make_mesh(config.Mesh(), jax.devices()[:1])
    text = Programs.lower(deep, SETTINGS, mesh).accumulate.as_text()
    assert len(text.splitlines()) == len(programs.accumulate.as_text().splitlines())


def test_what_is_replaced_is_donated(programs):
    """Gradients by their sum; parameters and moments by their successors."""
    count = len(jax.tree.leaves(nnx.state(abstract(MODEL, SETTINGS.model))))
    donated = {
        name: getattr(programs, name).as_text().count("tf.aliasing_output")
        for name in ("accumulate", "add_group", "apply")
    }
    # Moments are two trees and a count.
    assert donated == {"accumulate": count, "add_group": count, "apply": 3 * count + 1}
