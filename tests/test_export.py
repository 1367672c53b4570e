"""The exported folder is a whole model for transformers: weights, tokenizer, template, ids."""

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from flax import nnx

from spade_jax import config as settings_
from spade_jax import export
from spade_jax.models import loading
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import build

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"


@pytest.fixture
def tokenizer():
    letters = {letter: i for i, letter in enumerate("abcdefgh")}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    core.add_special_tokens(["<end>", "<pad>"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<end>", pad_token="<pad>", chat_template=TEMPLATE
    )


def test_transformers_loads_the_export(tmp_path, tokenizer):
    config = ModelConfig(
        model_type="qwen3_moe",
        vocabulary=10,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        feed_forward=48,
        max_positions=64,
        qk_norm=True,
        experts=4,
        experts_per_token=2,
        expert_feed_forward=16,
        initial_std=0.2,
    )
    model = build(config, settings_.Model(), 0)
    out = export.export(tmp_path / "out", config, nnx.state(model), tokenizer)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    loaded = transformers.AutoTokenizer.from_pretrained(out)
    text = "abcabc<end>hgh"
    ids = loaded(text).input_ids
    assert ids == tokenizer(text).input_ids
    assert loaded.chat_template == TEMPLATE
    assert theirs.generation_config.eos_token_id == tokenizer.eos_token_id
    assert theirs.generation_config.pad_token_id == tokenizer.pad_token_id
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
    token_bt = np.array([ids])
    h_btd = model.hidden(token_bt, np.arange(len(ids))[None], np.ones_like(token_bt))
    np.testing.assert_allclose(h_btd @ model.head().T, expected, atol=1e-4)

    again, beside = loading.load(settings_.Model(source=str(out)), 0)
    assert beside.get_vocab() == tokenizer.get_vocab()
    np.testing.assert_array_equal(again.embedding[...], model.embedding[...])
    with pytest.raises(ModelError, match="exists"):
        export.export(out, config, nnx.state(model), tokenizer)
