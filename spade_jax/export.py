"""Writes the policy of a run as a Hugging Face folder.

    python -m spade_jax.export --workdir=runs/first --out=exported

The folder loads with transformers, SGLang and as ``config.model.source`` of another run.
"""

import os
import pathlib
from typing import Any

from absl import flags
from flax import nnx

from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig

_WORKDIR = flags.DEFINE_string("workdir", None, "Run directory.")
_OUT = flags.DEFINE_string("out", None, "Folder to write; must not exist.")
_STEP = flags.DEFINE_integer("step", None, "Checkpoint to export; default the latest.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "", ["", "float32", "bfloat16"], "Dtype of the file; default that of the parameters."
)


def export(
    out: str | os.PathLike,
    config: ModelConfig,
    params: nnx.State,
    tokenizer: Any,
    dtype: str = "",
) -> pathlib.Path:
    """Writes the folder, complete or not at all, and returns it.

    Token ids that the model's config leaves open are taken from the tokenizer.

    Raises:
      ModelError: the folder exists.
    """
    huggingface.save(out, huggingface.with_tokens(config, tokenizer), params, tokenizer, dtype)
    return pathlib.Path(out)
