"""The decoder against transformers (torch, float32, CPU) on small random checkpoints."""

import dataclasses

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
    model = transformers.AutoModelForCausalLM.from_config(KINDS[kind], dtype=torch.float32).eval()
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
