"""Scores a policy on benchmarks.

    python -m spade_jax.evaluate --config=configs/laptop.py --workdir=runs/first \\
        --benchmarks=reasoning_gym_hard,bfcl_multi_turn --limit=20

The policy is the newest checkpoint of the run directory, or ``--checkpoint``: a step, ``initial``
(the policy that the run begins with; also what is taken where there is no checkpoint) or
``hf:FOLDER_OR_HUB_ID``; with ``--all-checkpoints`` every checkpoint in turn; with ``--endpoint``
whatever answers there. The same command continues where the last one ended. Results go to
``--out``, by default ``WORKDIR/evaluation/POLICY``; docs/evaluation.md has the protocols. Where
a benchmark's dialogues have a user, ``--user`` plays it, or else the policy itself.
A benchmark whose data is not here is skipped, with the command that gets it.
"""

import asyncio
import dataclasses
import logging as python_logging
import os
import sys
from pathlib import Path

import jax
from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console

from spade_jax import cache, config, evaluation, trajectory
from spade_jax.benchmarks import user
from spade_jax.benchmarks.interface import Broken
from spade_jax.benchmarks.results import Mixed
from spade_jax.learner.checkpoint import CheckpointError
from spade_jax.models.config import ModelError
from spade_jax.sampling.rendering import TemplateError
from spade_jax.sampling.sglang import NoServer

_CONFIG = config_flags.DEFINE_config_file("config", None, "a file of configs/", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", "runs/default", "run directory of train")
_BENCHMARKS = flags.DEFINE_list("benchmarks", [], "names, games or tools; comma-separated")
_CHECKPOINT = flags.DEFINE_string("checkpoint", "", "STEP, initial or hf:PATH; '' = the newest")
_LIMIT = flags.DEFINE_integer("limit", 0, "items of each benchmark; 0 = all", lower_bound=0)
_CONTEXT = flags.DEFINE_integer(
    "context", 0, "tokens of a dialogue; 0 = config.sampler.context", lower_bound=0
)
_ALL = flags.DEFINE_bool("all-checkpoints", False, "score every checkpoint of the run directory")
_ENDPOINT = flags.DEFINE_string(
    "endpoint", "", "base URL of an OpenAI-compatible server (http://HOST:PORT/v1) to score instead"
)
_MODEL = flags.DEFINE_string("model", "", "model to ask for at --endpoint; '' = its first")
_USER = flags.DEFINE_string(
    "user",
    "",
    "base URL of an OpenAI-compatible server that plays the user in the benchmarks that have one; "
    "'' = the policy itself",
)
_USER_MODEL = flags.DEFINE_string("user-model", "", "model to ask for at --user; '' = its first")
_DATA = flags.DEFINE_string(
    "data", "", "folder with the files of benchmarks that need some; '' = benchmarks/ of the cache"
)
_OUT = flags.DEFINE_string("out", "", "folder of the results; '' = in the run directory")


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    python_logging.getLogger("absl").setLevel("ERROR")  # orbax warns that a reader cannot write
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache.folder("compiled")))
    try:
        settings = config.from_config_dict(_CONFIG.value)
        if _CONTEXT.value:
            sampler = dataclasses.replace(settings.sampler, context=_CONTEXT.value)
            settings = dataclasses.replace(settings, sampler=sampler)
        done = asyncio.run(_with_user(settings))
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


async def _with_user(settings: config.Config) -> bool:
    seed, timeout = settings.seed, settings.sampler.timeout
    async with user.at(_USER.value, _USER_MODEL.value, seed, timeout) as simulator:
        return await _evaluate(settings, simulator)


async def _evaluate(settings: config.Config, simulator: user.User) -> bool:
    """Whether anything was scored."""
    out, workdir, console = (
        Path(_OUT.value) if _OUT.value else None,
        Path(_WORKDIR.value),
        Console(),
    )
    data = {"data": Path(_DATA.value)} if _DATA.value else {}
    wanted = evaluation.Wanted(_BENCHMARKS.value, _LIMIT.value, user=simulator, **data)
    if sum(map(bool, (_ALL.value, _ENDPOINT.value, _CHECKPOINT.value))) > 1:
        raise config.ConfigError("give one of --checkpoint, --all-checkpoints and --endpoint")
    if _ALL.value:
        every = await trajectory.evaluate_all(settings, workdir, wanted, out, console)
        return any(isinstance(row, dict) for results in every.values() for row in results.values())
    if _ENDPOINT.value:
        server = (_ENDPOINT.value, _MODEL.value)
        found = await evaluation.evaluate_endpoint(settings, workdir, wanted, *server, out, console)
    else:
        found = await evaluation.evaluate(
            settings, workdir, wanted, _CHECKPOINT.value, out, console
        )
    return any(isinstance(result, dict) for result in found.values())


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
