"""The policy of a run: where its weights come from at the start, and what a run made of them."""

import dataclasses
from pathlib import Path

import jax
from transformers import PreTrainedTokenizerFast

from spade_jax import config
from spade_jax.models import loading
from spade_jax.models.transformer import Transformer
from spade_jax.progress import RunProgress
from spade_jax.selfplay.exchange import Exchange
from spade_jax.warm_start import stage

INITIAL = "initial"
"""Folder of a run directory that holds the taught model, in Hugging Face format."""


async def prepare(
    settings: config.Config,
    workdir: Path,
    progress: RunProgress,
    mesh: jax.sharding.Mesh | None,
    exchange: Exchange,
) -> tuple[Transformer, PreTrainedTokenizerFast]:
    """The initial policy; taught first, if the config says so and nobody has done it before.

    Of several processes the first one teaches, and all read what it wrote.
    """
    initial = workdir / INITIAL
    if settings.warm_start.enabled and exchange.index == 0 and not initial.exists():
        stage.taught(settings, initial, progress)
    await exchange.all_gather("the initial policy", None)
    return load(settings, workdir, mesh)


def load(
    settings: config.Config, workdir: Path, mesh: jax.sharding.Mesh | None = None
) -> tuple[Transformer, PreTrainedTokenizerFast]:
    """Architecture, initial weights (laid out on ``mesh``) and tokenizer of a run."""
    model = settings.model
    if (workdir / INITIAL).exists():
        model = dataclasses.replace(model, source=str(workdir / INITIAL))
    transformer, tokenizer = loading.load(model, settings.seed, mesh)
    if tokenizer is None:
        raise config.ConfigError(
            f"config.model.tokenizer: nothing is set and {model.source!r} comes without one; "
            "name a folder or hub id, or let config.warm_start make one"
        )
    transformer.remat = settings.learner.remat
    return transformer, tokenizer
