"""One door to every source of weights."""

import difflib
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import jax
import transformers
from etils import epath

from spade_jax import config as settings_
from spade_jax.models import gguf, huggingface
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import Transformer, build

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model"]


def load(
    settings: settings_.Model, seed: int, mesh: jax.sharding.Mesh | None = None
) -> tuple[Transformer, transformers.PreTrainedTokenizerFast | None]:
    """Model and tokenizer that ``settings`` ask for.

    Args:
      seed: of the random weights of a model from scratch.
      mesh: where weights are placed; None is the default device.

    Returns:
      The model, and its tokenizer: that of ``settings.tokenizer`` if set, else the one beside the
      weights, else None.

    Raises:
      ModelError: the source does not exist, is damaged or is not supported.
    """
    source = settings.source
    tokenizer = load_tokenizer(settings.tokenizer) if settings.tokenizer else None
    if source == "scratch":
        return build(scratch_config(settings.architecture), settings, seed, mesh=mesh), tokenizer
    if source == "smollm2" or source.endswith(".gguf"):
        file = gguf.smollm2() if source == "smollm2" else source
        model, beside = gguf.load(file, settings, mesh)
        return model, tokenizer or beside
    folder = find_folder(source)
    model = huggingface.load(folder, settings, mesh)
    if tokenizer is None and (folder / "tokenizer_config.json").exists():
        tokenizer = load_tokenizer(source if "://" in source else str(folder))
    return model, tokenizer


def scratch_config(architecture: Mapping[str, Any]) -> ModelConfig:
    """A model from scratch. Unlike in a downloaded config.json, an unknown key is a mistake."""
    if not architecture:
        raise ModelError(
            "config.model.architecture is empty, so there is nothing to build from scratch; set "
            "it, or set config.model.source to a folder, a hub id, a .gguf file or 'smollm2'"
        )
    config = ModelConfig.from_hf(architecture)
    known = {*config.to_hf(), "num_local_experts", "attention_bias", "mlp_bias"}
    for key in architecture:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise ModelError(f"config.model.architecture.{key}: no such key; did you mean {near}?")
    return config


def find_folder(source: str) -> epath.Path:
    """A folder here or in a bucket as it is, or the snapshot of a hub id, downloaded if need be.

    Raises:
      ModelError: neither, or the bucket or the hub cannot be reached.
    """
    try:
        if epath.Path(source).is_dir():
            return epath.Path(source)
    except (ImportError, OSError, ValueError) as error:
        raise ModelError(f"config.model.source={source!r} cannot be reached ({error})") from error
    if not _HUB_ID.fullmatch(source):
        raise ModelError(
            f"config.model.source={source!r} is no folder; give 'scratch', 'smollm2', a folder "
            "(gs://... for one in a bucket), a .gguf file or a hub id such as Qwen/Qwen3-0.6B"
        )
    import huggingface_hub

    try:
        return epath.Path(huggingface_hub.snapshot_download(source, allow_patterns=_HUB_FILES))
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"config.model.source={source!r} is no folder here, and the hub did not give it "
            f"({reason}). Offline, download it elsewhere (hf download {source}) and name the folder"
        ) from error


def load_tokenizer(source: str) -> transformers.PreTrainedTokenizerFast:
    """The tokenizer of a folder, here or in a bucket, or hub id.

    Raises:
      ModelError: there is none, or it is not a fast one.
    """
    if "://" in source:
        with tempfile.TemporaryDirectory() as copy:
            for pattern in _HUB_FILES:
                for file in find_folder(source).glob(pattern):
                    if not file.name.endswith(".safetensors"):
                        (epath.Path(copy) / file.name).write_bytes(file.read_bytes())
            return load_tokenizer(copy)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ModelError(f"config.model.tokenizer={source!r} cannot be loaded: {error}") from error
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise ModelError(
            f"config.model.tokenizer={source!r} is {type(tokenizer).__name__}, not fast"
        )
    return tokenizer
