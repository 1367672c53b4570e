"""Writes the policy of a run as a Hugging Face folder.

    python -m spade_jax.export --workdir=runs/first --out=exported

The folder loads with transformers, SGLang and as ``config.model.source`` of another run.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Any

from absl import logging
from flax import nnx

from spade_jax import config, policy
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import huggingface
from spade_jax.models.config import ModelConfig, ModelError
from spade_jax.selfplay.batch import ROLES


def export(
    out: str | os.PathLike,
    model_config: ModelConfig,
    params: nnx.State,
    tokenizer: Any,
    dtype: str = "",
) -> pathlib.Path:
    """Writes the folder, complete or not at all, and returns it.

    Token ids that the model's config leaves open are taken from the tokenizer.

    Raises:
      ModelError: the folder exists.
    """
    huggingface.save(
        out, huggingface.with_tokens(model_config, tokenizer), params, tokenizer, dtype
    )
    return pathlib.Path(out)


def of_run(workdir: pathlib.Path, step: int | None) -> tuple[ModelConfig, nnx.State, Any]:
    """Architecture, parameters and tokenizer of a checkpoint; the newest if ``step`` is None.

    Raises:
      CheckpointError: the directory holds no run, or no such checkpoint.
    """
    described = workdir / "config.json"
    if not described.exists():
        raise CheckpointError(f"{workdir}: no config.json, so no run; give a --workdir of train")
    settings = config.from_config_dict(json.loads(described.read_text()))
    model, tokenizer = policy.load(settings, workdir)
    learner = Learner(model, settings.learner, ROLES)
    if not (workdir / "checkpoints").is_dir():
        raise CheckpointError(f"{workdir}: no checkpoints yet; let train finish an iteration")
    with Checkpoints(workdir / "checkpoints", keep=1, writable=False) as checkpoints:
        step = checkpoints.latest() if step is None else step
        if step is None:
            raise CheckpointError(
                f"{workdir}: no finished checkpoint yet; let train finish its first iteration"
            )
        learner.state, _ = checkpoints.restore(step, learner.state)
    return model.config, learner.params, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", type=pathlib.Path, required=True, help="of the run")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder; must not exist")
    parser.add_argument("--step", type=int, help="checkpoint; default the latest")
    parser.add_argument(
        "--dtype", default="", choices=["float32", "bfloat16"], help="default the parameters'"
    )
    chosen = parser.parse_args()
    logging.set_verbosity(logging.ERROR)  # orbax warns that a reader cannot write
    try:
        model_config, params, tokenizer = of_run(chosen.workdir, chosen.step)
        folder = export(chosen.out, model_config, params, tokenizer, chosen.dtype)
    except (CheckpointError, config.ConfigError, ModelError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
