"""Hugging Face folders: what goes in comes out, transformers reads it, damage is refused."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from flax import nnx
from test_transformer import KINDS, logits, reference, torch_logits

from spade_jax import config as settings_
from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import build

TOKENS = np.random.default_rng(0).integers(0, 96, (1, 12))


def all_tensors(folder):
    return {
        name: value
        for file in folder.glob("*.safetensors")
        for name, value in safetensors.numpy.load_file(file).items()
    }


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "qwen2", "llama_tied"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_import_then_export_gives_the_same_bytes(kind, dtype, tmp_path):
    reference(kind, tmp_path / "a").to(getattr(torch, dtype)).save_pretrained(tmp_path / "a")
    model = huggingface.load(tmp_path / "a", settings_.Model(parameter_dtype=dtype))
    huggingface.save(tmp_path / "b", model.config, nnx.state(model))
    expected, actual = all_tensors(tmp_path / "a"), all_tensors(tmp_path / "b")
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        assert (value.dtype, value.shape) == (actual[name].dtype, actual[name].shape), name
        assert value.tobytes() == actual[name].tobytes(), name


def test_bfloat16_survives_float32_parameters(tmp_path):
    reference("qwen3", tmp_path / "a").to(torch.bfloat16).save_pretrained(tmp_path / "a")
    model = huggingface.load(tmp_path / "a", settings_.Model(parameter_dtype="float32"))
    huggingface.save(tmp_path / "b", model.config, nnx.state(model), dtype="bfloat16")
    actual = all_tensors(tmp_path / "b")
    for name, value in all_tensors(tmp_path / "a").items():
        assert value.tobytes() == actual[name].tobytes(), name


@pytest.mark.parametrize("kind", ["qwen3_moe", "qwen3_yarn", "llama3", "qwen2"])
def test_transformers_reads_a_sharded_export(kind, tmp_path):
    config = ModelConfig.from_hf(KINDS[kind].to_dict())
    model = build(config, settings_.Model(), seed=3)
    huggingface.save(tmp_path / "m", config, nnx.state(model), shard_bytes=40_000)
    files = sorted(tmp_path.glob("m/*.safetensors"))
    assert len(files) > 2
    assert all(file.stat().st_size < 45_000 for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o644 for file in files)
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "m", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    expected = logits(model, TOKENS)
    np.testing.assert_allclose(torch_logits(theirs.eval(), TOKENS), expected, atol=1e-4)
    again = huggingface.load(tmp_path / "m", settings_.Model())
    np.testing.assert_array_equal(logits(again, TOKENS), expected)


def test_config_survives_both_ways():
    for kind, theirs in KINDS.items():
        ours = ModelConfig.from_hf(theirs.to_dict())
        assert ModelConfig.from_hf(json.loads(json.dumps(ours.to_hf()))) == ours, kind
        legacy = {key: value for key, value in ours.to_hf().items() if key != "rope_parameters"}
        assert ModelConfig.from_hf(legacy) == ours, kind
        again = type(theirs)(**ours.to_hf()).to_dict()
        for key, value in theirs.to_dict().items():
            if key not in ("architectures", "rope_parameters"):
                assert again[key] == value, (kind, key)
        assert (
            dict(again["rope_parameters"]).items()
            >= {
                key: value for key, value in theirs.rope_parameters.items() if value is not None
            }.items()
        )


def test_special_ids_are_kept(tmp_path):
    values = {**KINDS["qwen3"].to_dict(), "eos_token_id": [5, 7], "bos_token_id": 1}
    config = ModelConfig.from_hf(values)
    huggingface.save(tmp_path / "m", config, nnx.state(build(config, settings_.Model(), 0)))
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "m")
    assert (generation.eos_token_id, generation.bos_token_id) == ([5, 7], 1)
    assert huggingface.read_config(tmp_path / "m") == config


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("qwen3", "model_type", "gemma3"),
        ("qwen3", "hidden_act", "gelu"),
        ("qwen3", "head_dim", None),
        ("qwen3", "attention_bias", True),
        ("qwen2", "layer_types", ["full_attention", "sliding_attention"]),
        ("llama", "mlp_bias", True),
        ("llama", "quantization_config", {"bits": 4}),
        ("llama", "vocab_size", None),
        ("llama", "rope_parameters", {"rope_type": "longrope", "rope_theta": 1e4}),
        ("qwen3_moe", "mlp_only_layers", [0]),
        ("qwen3_moe", "decoder_sparse_step", 2),
        ("qwen3_moe", "shared_expert_intermediate_size", 64),
        ("qwen3_moe", "num_experts_per_tok", 9),
    ],
)
def test_unsupported_configs_are_refused_by_key(kind, key, value):
    named = {"rope_parameters": "rope_type"}.get(key, key)
    with pytest.raises(ModelError, match=named):
        ModelConfig.from_hf({**KINDS[kind].to_dict(), key: value})


def test_sliding_windows_are_refused_only_in_use():
    values = {**KINDS["qwen2"].to_dict(), "sliding_window": 128}
    ModelConfig.from_hf({**values, "use_sliding_window": False})
    with pytest.raises(ModelError, match="use_sliding_window"):
        ModelConfig.from_hf({**values, "use_sliding_window": True})


@pytest.fixture
def folder(tmp_path):
    config = ModelConfig.from_hf(KINDS["llama"].to_dict())
    params = nnx.state(build(config, settings_.Model(), 0))
    huggingface.save(tmp_path / "m", config, params, shard_bytes=60_000)
    return tmp_path / "m"


def test_damaged_checkpoints_are_refused(folder):
    victim = sorted(folder.glob("*.safetensors"))[1]
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=victim.name):
        huggingface.load(folder, settings_.Model())
    victim.unlink()
    with pytest.raises(ModelError, match=victim.name):
        huggingface.load(folder, settings_.Model())
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ModelError, match="index"):
        huggingface.load(folder, settings_.Model())


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_mismatching_checkpoints_are_refused_with_tensor_and_shape(folder):
    edit_config(folder, hidden_size=44)
    with pytest.raises(
        ModelError, match=r"embed_tokens.* has shape \(96, 48\).* asks for \(96, 44\)"
    ):
        huggingface.load(folder, settings_.Model())
    edit_config(folder, hidden_size=48, num_hidden_layers=4)
    with pytest.raises(ModelError, match=r"layers\.3\.\S+ of shape \(\d+.*missing"):
        huggingface.load(folder, settings_.Model())
    edit_config(folder, num_hidden_layers=2)
    with pytest.raises(ModelError, match=r"layers\.2\.\S+ has no place"):
        huggingface.load(folder, settings_.Model())


def test_save_is_complete_or_absent(folder, tmp_path, monkeypatch):
    model = huggingface.load(folder, settings_.Model())
    with pytest.raises(ModelError, match="exists"):
        huggingface.save(folder, model.config, nnx.state(model))

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    before = set(tmp_path.iterdir())
    with pytest.raises(OSError, match="disk full"):
        huggingface.save(tmp_path / "new", model.config, nnx.state(model))
    assert set(tmp_path.iterdir()) == before


def test_a_mesh_places_weights_while_loading(folder):
    """One device here; that each device gets its own part is in test_sharding."""
    from spade_jax.models import sharding

    mesh = sharding.make_mesh(settings_.Mesh(), jax.devices()[:1])
    placed = nnx.state(huggingface.load(folder, settings_.Model(), mesh))
    plain = nnx.state(huggingface.load(folder, settings_.Model()))
    for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(plain), strict=True):
        assert a.sharding.mesh.axis_names == sharding.AXES
        np.testing.assert_array_equal(a, b)
