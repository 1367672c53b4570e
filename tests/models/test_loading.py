"""Every source of weights through one door."""

import jax
import numpy as np
import pytest
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import huggingface, loading
from spade_jax.models.config import ModelError

ARCHITECTURE = {
    "model_type": "qwen3_moe",
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "tie_word_embeddings": True,
    "max_position_embeddings": 128,
}


def leaves(model):
    return jax.tree.leaves(nnx.state(model))


def test_scratch_depends_on_the_seed_alone():
    settings = settings_.Model(architecture=ARCHITECTURE)
    (one, tokenizer), (same, _), (other, _) = (loading.load(settings, s) for s in (0, 0, 1))
    assert tokenizer is None
    for a, b in zip(leaves(one), leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(leaves(one), leaves(other), strict=True))
    assert abs(float(np.std(one.embedding[...])) - 0.02) < 0.002


def test_scratch_refuses_a_typing_slip():
    slip = {**ARCHITECTURE, "tie_word_embedding": True}
    with pytest.raises(ModelError, match=r"tie_word_embedding: .*mean tie_word_embeddings"):
        loading.load(settings_.Model(architecture=slip), 0)
    with pytest.raises(ModelError, match=r"config\.model\.architecture is empty"):
        loading.load(settings_.Model(), 0)


def test_a_folder_gives_back_what_was_saved(tmp_path):
    model, _ = loading.load(settings_.Model(architecture=ARCHITECTURE), 0)
    huggingface.save(tmp_path / "m", model.config, nnx.state(model))
    again, tokenizer = loading.load(settings_.Model(source=str(tmp_path / "m")), 7)
    assert tokenizer is None
    assert again.config == model.config
    for a, b in zip(leaves(again), leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_sources_that_do_not_exist(monkeypatch, tmp_path):
    with pytest.raises(ModelError, match="is no folder; give 'scratch'"):
        loading.load(settings_.Model(source="./nowhere/at/all"), 0)
    with pytest.raises(ModelError, match=r"absent\.gguf"):
        loading.load(settings_.Model(source=str(tmp_path / "absent.gguf")), 0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="Offline, download it elsewhere"):
        loading.load(settings_.Model(source="nobody/nothing-of-this-name"), 0)
