"""Self-play training: ``python -m spade_jax.train --config=configs/laptop.py --workdir=DIR``.

The same command on the same directory continues the run from its last finished iteration.
"""

import asyncio
import json
import sys
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console

from spade_jax import config, policy, summary
from spade_jax.data import corpus as corpora
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models.config import ModelError
from spade_jax.progress import RunProgress
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer, TemplateError
from spade_jax.sampling.waves import Waves
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.limits import InsufficientTierError
from spade_jax.selfplay.batch import ROLES
from spade_jax.selfplay.cycle import Cycle
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import State

_CONFIG = config_flags.DEFINE_config_file("config", None, "a file of configs/", lock_config=True)
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/default", "run directory; an existing one is continued"
)


async def train(settings: config.Config, workdir: Path, console: Console) -> None:
    """Runs or continues ``settings.iterations`` iterations in ``workdir`` and prints a summary.

    Raises:
      summary.RunFailed: the run ended without enough environments or undecided play.
    """
    claim(workdir, settings)
    with RunProgress("warm start", 1, console=console) as progress:
        model, tokenizer = policy.prepare(settings, workdir, progress)
    renderer = Renderer(tokenizer)
    learner = Learner(model, settings.learner, ROLES)
    corpus = corpora.load(settings.corpus.source, settings.seed) if settings.corpus.source else None
    state = State.fresh(settings.memory)
    records = Records(workdir)

    with Checkpoints(workdir / "checkpoints", settings.checkpoint.keep) as checkpoints:
        if (step := checkpoints.latest()) is not None:
            learner.state, data = checkpoints.restore(step, learner.state)
            state = State.from_json(data["selfplay"], settings.memory)
            if corpus is not None:
                corpus.set_state(data["corpus"])
            console.print(f"continuing after iteration {state.iteration - 1}")
        records.drop_metrics_from(state.iteration)

        async with EnvironmentHost(settings.sandbox) as host:
            console.print(str(host.report), highlight=False, markup=False)
            native = NativeSampler(model, settings.sampler, settings.seed)
            sampler: Sampler = Waves(native) if settings.sampler.deterministic else native
            sampler.update(learner.params, state.iteration)
            with RunProgress("iteration", settings.iterations, state.iteration, console) as bar:
                cycle = Cycle(
                    settings, state, learner, sampler, host, renderer, corpus, records, bar
                )
                while state.iteration < settings.iterations:
                    row = await cycle.run_iteration()
                    records.metrics(row)
                    if (
                        state.iteration % settings.checkpoint.every == 0
                        or state.iteration == settings.iterations
                    ):
                        position = corpus.get_state() if corpus else None
                        data = {"selfplay": state.to_json(), "corpus": position}
                        checkpoints.save(state.iteration, learner.state, data)
                    bar.step(summary.line(row))

    rows = records.read_metrics()
    summary.show(rows, workdir, console)
    summary.check(rows, workdir)


def claim(workdir: Path, settings: config.Config) -> None:
    """Writes the config into a new run directory; compares it with that of an existing one.

    Raises:
      config.ConfigError: the directory holds a run with other settings.
    """
    wanted = json.loads(json.dumps(config.to_dict(settings)))
    path = workdir / "config.json"
    if not path.exists():
        workdir.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wanted, indent=1) + "\n")
        return
    found = json.loads(path.read_text())
    differences = [
        f"  {name}: {old!r} there, {new!r} asked for"
        for name, old, new in config.differences(found, wanted)
    ]
    if differences:
        raise config.ConfigError(
            f"{workdir} holds a run with other settings; use a new --workdir or the same "
            "settings:\n" + "\n".join(differences)
        )


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    console = Console()
    try:
        settings = config.from_config_dict(_CONFIG.value)
        asyncio.run(train(settings, Path(_WORKDIR.value), console))
    except (
        CheckpointError,
        config.ConfigError,
        corpora.CorpusError,
        ModelError,
        TemplateError,
        InsufficientTierError,
        summary.RunFailed,
    ) as error:
        console.print(f"[bold red]{type(error).__name__}[/]: {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
