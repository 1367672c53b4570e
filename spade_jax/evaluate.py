"""Scores a policy on benchmarks.

    python -m spade_jax.evaluate --config=configs/laptop.py --workdir=runs/first \\
        --benchmarks=bfcl_multi_turn --limit=20

The policy is the newest checkpoint of the run directory, or ``--checkpoint``: a step, ``initial``
(the policy that the run begins with; also what is taken where there is no checkpoint) or
``hf:FOLDER_OR_HUB_ID``. The same command continues where the last one ended. Results go to
``--out``, by default ``WORKDIR/evaluation/POLICY``; docs/evaluation.md has the protocols.
A benchmark whose data is not here is skipped, with the command that gets it.
"""

import asyncio
import dataclasses
import os
import sys
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console

from spade_jax import cache, config, evaluation
from spade_jax.benchmarks.interface import Broken
from spade_jax.benchmarks.results import Mixed
from spade_jax.learner.checkpoint import CheckpointError
from spade_jax.models.config import ModelError
from spade_jax.sampling.rendering import TemplateError
from spade_jax.sampling.sglang import NoServer

_CONFIG = config_flags.DEFINE_config_file("config", None, "a file of configs/", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", "runs/default", "run directory of train")
_BENCHMARKS = flags.DEFINE_list("benchmarks", [], "names, comma-separated")
_CHECKPOINT = flags.DEFINE_string("checkpoint", "", "STEP, initial or hf:PATH; '' = the newest")
_LIMIT = flags.DEFINE_integer("limit", 0, "items of each benchmark; 0 = all", lower_bound=0)
_CONTEXT = flags.DEFINE_integer(
    "context", 0, "tokens of a dialogue; 0 = config.sampler.context", lower_bound=0
)
_OUT = flags.DEFINE_string("out", "", "folder of the results; '' = in the run directory")


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache.folder("compiled")))
    try:
        settings = config.from_config_dict(_CONFIG.value)
        if _CONTEXT.value:
            sampler = dataclasses.replace(settings.sampler, context=_CONTEXT.value)
            settings = dataclasses.replace(settings, sampler=sampler)
        out = Path(_OUT.value) if _OUT.value else None
        wanted = (_BENCHMARKS.value, _CHECKPOINT.value, _LIMIT.value, out)
        done = asyncio.run(evaluation.evaluate(settings, Path(_WORKDIR.value), *wanted, Console()))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command continues")
    except (
        Broken,
        CheckpointError,
        config.ConfigError,
        Mixed,
        ModelError,
        NoServer,
        TemplateError,
    ) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    if not done:
        sys.exit("no benchmark could be scored")


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
