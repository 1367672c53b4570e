"""Versions on disk, as transformers and safetensors read them."""

import json

import numpy as np
import safetensors.numpy
import torch
import transformers
from flax import nnx

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import build
from spade_jax.sampling.versions import Versions

DENSE = {
    "model_type": "qwen3",
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "rope_theta": 1e4,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.5,
    "tie_word_embeddings": True,
}
EXPERTS = DENSE | {
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def written(tmp_path, values):
    """The model and the folder of its version 3."""
    known = ModelConfig.from_hf(values)
    model = build(known, config.Model(), 0)
    versions = Versions(tmp_path, "", known, None, "float32")
    return model, tmp_path / versions.write(nnx.split(model)[1], 3).label


def test_tied_experts_get_a_head_of_their_own(tmp_path):
    """SGLang's Qwen3-MoE would have none; transformers reads the folder as the same model."""
    model, folder = written(tmp_path, EXPERTS)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    head, embedding = tensors["lm_head.weight"], tensors["model.embed_tokens.weight"]
    np.testing.assert_array_equal(head, embedding)
    assert not json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    token_bt = np.arange(12).reshape(1, 12)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor(token_bt)).logits.numpy()
    h_btd = model.hidden(token_bt, token_bt, np.ones_like(token_bt))
    np.testing.assert_allclose(h_btd @ model.head().T, expected, atol=1e-4)


def test_a_tied_dense_model_stays_tied(tmp_path):
    _, folder = written(tmp_path, DENSE)
    assert "lm_head.weight" not in safetensors.numpy.load_file(folder / "model.safetensors")
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
