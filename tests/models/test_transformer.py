"""The decoder against transformers (torch, float32, CPU) on small random checkpoints."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import huggingface

torch.set_num_threads(1)

SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # wide, so that attention and the router have something to decide
}
KINDS = {
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16, rope_theta=5e6),
    "qwen3_tied": transformers.Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True),
    "qwen3_moe": transformers.Qwen3MoeConfig(
        **SMALL,
        head_dim=16,
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
    ),
    "qwen3_moe_raw": transformers.Qwen3MoeConfig(
        **SMALL,
        head_dim=12,
        num_experts=4,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        norm_topk_prob=False,
    ),
    "qwen2": transformers.Qwen2Config(**SMALL),
    "llama": transformers.LlamaConfig(**SMALL, rope_theta=1e5),
    "llama_tied": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama_linear": transformers.LlamaConfig(
        **SMALL, rope_scaling={"rope_type": "linear", "factor": 4.0}
    ),
    "llama3": transformers.LlamaConfig(
        **SMALL,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen3_yarn": transformers.Qwen3Config(
        **SMALL,
        head_dim=16,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
}


def reference(kind: str, folder):
    """A random torch model of this kind, biases and norms included, saved to a folder."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        copy.deepcopy(KINDS[kind]), dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


def logits(model, token_bt, position_bt=None, segment_bt=None):
    token_bt = jnp.asarray(token_bt, jnp.int32)
    if position_bt is None:
        position_bt = jnp.broadcast_to(jnp.arange(token_bt.shape[1]), token_bt.shape)
    if segment_bt is None:
        segment_bt = jnp.ones_like(token_bt)
    graph, params = nnx.split(model)

    @jax.jit
    def run(params, *inputs):
        merged = nnx.merge(graph, params)
        return merged.hidden(*inputs).astype(jnp.float32) @ merged.head().astype(jnp.float32).T

    return np.asarray(run(params, token_bt, jnp.asarray(position_bt), jnp.asarray(segment_bt)))


def torch_logits(model, token_bt, **inputs):
    with torch.no_grad():
        return model(torch.as_tensor(token_bt), **inputs).logits.numpy()


@pytest.fixture
def token_bt():
    return np.random.default_rng(0).integers(0, SMALL["vocab_size"], (2, 40))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_transformers(kind, tmp_path, token_bt):
    expected = torch_logits(reference(kind, tmp_path / "m"), token_bt)
    model = huggingface.load(tmp_path / "m", settings_.Model())
    assert np.std(expected) > 0.5
    np.testing.assert_allclose(logits(model, token_bt), expected, atol=1e-4)


def load(kind, folder, **settings):
    torch_model = reference(kind, folder)
    return huggingface.load(folder, settings_.Model(**settings)), torch_model


@pytest.mark.parametrize("kind", ["qwen3", "llama", "qwen3_yarn"])
def test_positions_far_beyond_4096(kind, tmp_path, token_bt):
    model, torch_model = load(kind, tmp_path / "m")
    for start in (4090, 30_000):
        position_bt = np.broadcast_to(np.arange(start, start + 40), token_bt.shape)
        expected = torch_logits(torch_model, token_bt, position_ids=torch.tensor(position_bt))
        # A float32 angle near 30,000 radians is only known to 1e-3, in either library.
        atol = 1e-4 if start < 5000 else 2e-2
        np.testing.assert_allclose(logits(model, token_bt, position_bt), expected, atol=atol)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
@pytest.mark.parametrize("experts", ["ragged_dot", "blocks"])
def test_packed_segments_equal_separate_sequences(kind, experts, tmp_path):
    model, torch_model = load(kind, tmp_path / "m", experts=experts)
    lengths, row = (9, 1, 20), np.zeros(40, int)
    position, segment, start = np.zeros(40, int), np.zeros(40, int), 0
    rng = np.random.default_rng(1)
    parts = []
    for number, length in enumerate(lengths, 1):
        part = slice(start, start + length)
        row[part] = rng.integers(0, SMALL["vocab_size"], length)
        position[part], segment[part] = np.arange(length), number
        start += length
        parts.append(part)
    packed = logits(model, row[None], position[None], segment[None])[0]
    for part in parts:
        expected = torch_logits(torch_model, row[None, part])[0]
        np.testing.assert_allclose(packed[part], expected, atol=1e-4)
    assert np.isfinite(packed).all()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_padding_changes_nothing_and_has_finite_gradients(kind, tmp_path, token_bt):
    model, _ = load(kind, tmp_path / "m")
    plain = logits(model, token_bt)
    padded = np.pad(token_bt, ((0, 1), (0, 24)))  # trailing padding and a row of nothing else
    segment = np.pad(np.ones_like(token_bt), ((0, 1), (0, 24)))
    out = logits(model, padded, segment_bt=segment)
    np.testing.assert_allclose(out[:2, :40], plain, atol=1e-5)
    assert np.isfinite(out).all()
    graph, params = nnx.split(model)

    def loss(params):
        position = jnp.broadcast_to(jnp.arange(64), padded.shape)
        h_btd = nnx.merge(graph, params).hidden(jnp.asarray(padded), position, jnp.asarray(segment))
        return jnp.square(h_btd * segment[..., None]).sum()

    for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(params)):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_bfloat16_stays_near_float32(kind, tmp_path, token_bt):
    """Tolerance: 3 % of the logits' spread on average, the size of bfloat16's own rounding.

    The maximum is not held: a router near a tie may choose another expert.
    """
    exact, _ = load(kind, tmp_path / "m")
    model = huggingface.load(
        tmp_path / "m", settings_.Model(parameter_dtype="bfloat16", compute_dtype="bfloat16")
    )
    expected, actual = logits(exact, token_bt), logits(model, token_bt)
    assert 1e-4 < np.abs(actual - expected).mean() / expected.std() < 0.03


def test_unrolled_layers_equal_the_scan(tmp_path, token_bt):
    model, _ = load("qwen3_moe", tmp_path / "m")
    token_bt = jnp.asarray(token_bt)
    position_bt = jnp.broadcast_to(jnp.arange(40), token_bt.shape)
    segment_bt = jnp.ones_like(token_bt)
    graph, params = nnx.split(model)

    @jax.jit
    def both(params):
        model = nnx.merge(graph, params)
        h_btd = model.embed(token_bt)
        for index in range(model.config.layers):
            h_btd = model.layer(index)(h_btd, position_bt, segment_bt)
        return model.final_norm(h_btd), model.hidden(token_bt, position_bt, segment_bt)

    np.testing.assert_allclose(*both(params), atol=1e-5)


def test_remat_changes_memory_not_gradients(tmp_path, token_bt):
    model, _ = load("qwen3_moe", tmp_path / "m")
    token_bt = jnp.asarray(token_bt)
    position_bt = jnp.broadcast_to(jnp.arange(40), token_bt.shape)

    def gradient(remat):
        model.remat = remat
        graph, params = nnx.split(model)

        def loss(params):
            merged = nnx.merge(graph, params)
            return jnp.square(merged.hidden(token_bt, position_bt, jnp.ones_like(token_bt))).sum()

        compiled = jax.jit(jax.grad(loss)).lower(params).compile()
        return compiled(params), compiled.memory_analysis().temp_size_in_bytes

    (plain, plain_bytes), (remat, remat_bytes) = gradient(False), gradient(True)
    assert remat_bytes < plain_bytes
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(remat), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
