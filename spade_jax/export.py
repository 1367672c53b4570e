"""Writes the policy of a run as a Hugging Face folder.

    python -m spade_jax.export --workdir=runs/first --out=exported

The folder loads with transformers, SGLang and as ``config.model.source`` of another run.
"""

import os
import pathlib
from typing import Any

from absl import app, flags
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models import huggingface, loading
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.models.transformer import abstract

_WORKDIR = flags.DEFINE_string("workdir", "", "Run directory.")
_OUT = flags.DEFINE_string("out", "", "Folder to write; must not exist.")
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


def read_run(workdir: pathlib.Path, step: int | None) -> tuple[ModelConfig, nnx.State, Any]:
    """Model config, parameters and tokenizer of a run's checkpoint.

    Reads ``workdir/model`` (config.json and tokenizer files) and ``workdir/checkpoints``.

    Raises:
      ModelError: no model in the run directory, or no complete checkpoint.
    """
    from spade_jax.learner.checkpoint import Checkpoints

    config = huggingface.read_config(workdir / "model")
    like = nnx.state(abstract(config, settings_.Model()))
    tokenizer = loading.load_tokenizer(str(workdir / "model"))
    with Checkpoints(workdir / "checkpoints", keep=1) as checkpoints:
        step = checkpoints.latest() if step is None else step
        if step is None:
            raise ModelError(f"{workdir / 'checkpoints'} holds no complete checkpoint")
        arrays, _ = checkpoints.restore(step, {"params": like})
    return config, arrays["params"], tokenizer


def main(argv: list[str]) -> None:
    del argv
    for flag in (_WORKDIR, _OUT):
        if not flag.value:
            raise app.UsageError(f"--{flag.name} is needed")
    run = read_run(pathlib.Path(_WORKDIR.value), _STEP.value)
    print(f"wrote {export(_OUT.value, *run, _DTYPE.value)}")


if __name__ == "__main__":
    app.run(main)
