"""Self-play training: ``python -m spade_jax.train --config=configs/laptop.py --workdir=DIR``.

The same command on the same directory continues the run from its last checkpoint
(``config.checkpoint.every``). SIGTERM saves a checkpoint and ends with status 0.

Several processes (docs/processes.md) are each started with the same command and ``--distributed``;
on a cluster that JAX does not know, with ``--coordinator``, ``--processes`` and ``--process`` too.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console

from spade_jax import cache, config, evaluation, policy, processes, summary
from spade_jax.benchmarks import registry
from spade_jax.benchmarks.interface import Broken
from spade_jax.benchmarks.results import Mixed
from spade_jax.data import corpus as corpora
from spade_jax.data import rows
from spade_jax.environments import pools, validation
from spade_jax.environments.tasks import TaskHost
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import sharding
from spade_jax.models.config import ModelError
from spade_jax.models.transformer import Transformer
from spade_jax.progress import RunProgress
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.native.lockstep import LockstepSampler, Peers
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer, TemplateError
from spade_jax.sampling.sglang import NoServer, SGLangSampler
from spade_jax.sampling.waves import Waves
from spade_jax.sandbox import placement
from spade_jax.sandbox.faults import EnvironmentFault, HostFault, NoHost
from spade_jax.sandbox.interface import Host
from spade_jax.sandbox.limits import InsufficientTierError
from spade_jax.selfplay.adaptive import Adaptive
from spade_jax.selfplay.batch import ROLES
from spade_jax.selfplay.cycle import Cycle
from spade_jax.selfplay.exchange import Exchange
from spade_jax.selfplay.pooled import Pooled
from spade_jax.selfplay.records import Records, Unrecorded
from spade_jax.selfplay.state import State
from spade_jax.selfplay.supply import Supply
from spade_jax.trackers import Trackers

MAY_CHANGE = (
    "checkpoint.every",
    "checkpoint.keep",
    "checkpoint.keep_every",
    "corpus.data_dir",
    "evaluation.benchmarks",
    "evaluation.data",
    "evaluation.every",
    "evaluation.limit",
    "processes.deadline",
    "sampler.in_flight",
    "sampler.patience",
    "sampler.router",
    "sampler.timeout",
    "sampler.update_timeout",
    "sampler.urls",
    "sampler.weights",
    "sampler.weights_seen_as",
    "sandbox.fleet",
    "sandbox.patience",
    "trackers.tensorboard",
    "trackers.wandb",
    "trackers.wandb_mode",
    "warm_start.cache",
)
"""Settings that may differ between the starts of one run: they change nothing in it."""
_CONFIG = config_flags.DEFINE_config_file("config", None, "a file of configs/", lock_config=True)
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/default", "run directory; an existing one is continued"
)
_ALLOW_CONFIG_CHANGE = flags.DEFINE_bool(
    "allow-config-change", False, "continue a run that was begun with other settings"
)
_DISTRIBUTED = flags.DEFINE_bool("distributed", False, "this is one of several processes")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of the first of them; empty = JAX finds the cluster"
)
_PROCESSES = flags.DEFINE_integer("processes", 0, "their number, beside --coordinator")
_PROCESS = flags.DEFINE_integer("process", 0, "index of this one, beside --coordinator")


async def train(
    settings: config.Config, workdir: Path, console: Console, allow_config_change: bool = False
) -> None:
    """Runs or continues ``settings.iterations`` iterations in ``workdir`` and prints a summary.

    SIGTERM and an interrupt save the run as it was before the present iteration and return. Of
    several processes, which share ``workdir``, the first one writes and prints.

    Args:
      allow_config_change: continue a run that was begun with other settings.

    Raises:
      config.ConfigError: the directory is in use or, unless allowed, of a run with other settings.
      summary.RunFailed: the run ended without enough environments or undecided play.
      processes.ProcessFault: another process is missing or failed.
    """
    exchange = processes.exchange(settings.processes)
    first = exchange.index == 0
    if not first:
        console = Console(quiet=True)
    try:
        with contextlib.ExitStack() as stack:
            if first:
                stack.enter_context(claim(workdir, settings, console, allow_config_change))
            await _train(settings, workdir, console, exchange)
    except asyncio.CancelledError:
        console.print(f"stopped and saved; the same command continues {workdir}")
    except Exception as error:
        exchange.fail(error)
        raise


async def _train(
    settings: config.Config, workdir: Path, console: Console, exchange: Exchange
) -> None:
    records = Records(workdir) if exchange.index == 0 else None
    supply = _supply(settings, records, console)
    if settings.evaluation.every:
        registry.find(settings.evaluation.benchmarks, Path(settings.evaluation.data))
        if exchange.count > 1:
            raise config.ConfigError(
                "config.evaluation.every: several processes do not evaluate; score their "
                "checkpoints with spade_jax.evaluate --all-checkpoints"
            )
    several, first = exchange.count > 1, exchange.index == 0
    peers = _peers(settings)
    mesh = sharding.make_mesh(settings.mesh) if several or settings.mesh != config.Mesh() else None
    messages = workdir / "messages.txt" if records else None
    with RunProgress("warm start", 1, console=console, messages=messages) as progress:
        model, tokenizer = await policy.prepare(settings, workdir, progress, mesh, exchange)
        progress.step("the initial policy is ready")
    renderer = Renderer(tokenizer, template_options={"enable_thinking": settings.model.thinking})
    # They come here at different times, and CPU devices wait for each other for 30 s at most.
    await exchange.all_gather("the model", None)
    learner = Learner(model, settings.learner, ROLES, mesh)
    corpus = _corpus(settings, exchange)
    if records and corpus is not None:
        records.corpus(corpus.documents, corpus.bad_rows)

    kept = settings.checkpoint
    with Checkpoints(workdir / "checkpoints", kept.keep, kept.keep_every) as checkpoints:
        state = _restore(checkpoints, learner, corpus, settings)
        if state.iteration:
            console.print(f"continuing after iteration {state.iteration - 1}")
        if records:
            records.drop_from(state.iteration)
        # From here on there is something to save: a signal ends the iteration, not the process.
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

        async with _host(settings) as host:
            if isinstance(host, TaskHost):
                supply = Adaptive(settings, host, records or Unrecorded())
            console.print(str(host.report), highlight=False, markup=False, soft_wrap=True)
            with (
                _sampling(model, tokenizer, settings, workdir, peers) as (sampler, sampler_metrics),
                RunProgress(
                    "iteration", settings.iterations, state.iteration, console, messages
                ) as bar,
                Trackers(
                    settings.trackers if first else config.Trackers(), workdir, state.iteration
                ) as trackers,
            ):
                sampler.update(learner.params, state.iteration)
                cycle = Cycle(
                    settings,
                    state,
                    learner,
                    sampler,
                    host,
                    renderer,
                    corpus,
                    records or Unrecorded(),
                    bar,
                    exchange,
                    supply,
                )
                if state.environments:
                    bar.show(summary.latest(state.environments, state.ledger))

                async def look(done: int) -> None:
                    place = (workdir, done, learner.params)
                    await evaluation.evaluate_within(settings, *place, sampler, renderer, bar)

                running = _iterations(cycle, learner, corpus, checkpoints, look)
                async with contextlib.aclosing(running) as rows:
                    async for row in rows:
                        row |= sampler_metrics()
                        if records:
                            records.metrics(row)
                        trackers.log(row)
                        _tell(bar, row, state)

    if records:
        written = records.read_metrics()
        summary.show(written, workdir, console)
        summary.check(written, workdir)


def _tell(bar: RunProgress, row: dict[str, Any], state: State) -> None:
    """Of an iteration that has ended, on the terminal."""
    bar.show(summary.latest(state.environments, state.ledger))
    bar.step(summary.line(row))
    for warning in summary.warnings(row):
        bar.warn(warning)


def _host(settings: config.Config) -> contextlib.AbstractAsyncContextManager[Host]:
    """Where episodes are played."""
    if settings.tasks.module:
        return TaskHost(settings.tasks.module)
    return placement.environment_host(settings.sandbox)


def _peers(settings: config.Config) -> Peers | None:
    """The processes that sample as one with this one; None where it samples alone."""
    hosts = settings.sampler.hosts_per_replica
    if settings.sampler.kind != "native" or hosts < 2:
        return None
    return processes.replica(settings.processes, hosts)


@contextlib.contextmanager
def _sampling(
    model: Transformer,
    tokenizer: Any,
    settings: config.Config,
    workdir: Path,
    peers: Peers | None,
) -> Iterator[tuple[Sampler, Callable[[], dict[str, float]]]]:
    """The sampler, and what it adds to each row of metrics."""
    wanted, seed = settings.sampler, settings.seed
    if wanted.kind == "sglang":
        parts = model.config, tokenizer, wanted, settings.model.compute_dtype, seed, workdir
        with SGLangSampler(*parts, processes.group(settings.processes)) as remote:
            yield remote, remote.metrics
        return
    if peers:
        with LockstepSampler(model, wanted, seed, peers) as together:
            yield together, dict
        return
    native = NativeSampler(model, wanted, seed)
    sampler: Sampler = Waves(native) if wanted.deterministic else native
    yield sampler, dict


def _restore(
    checkpoints: Checkpoints,
    learner: Learner,
    corpus: corpora.Corpus | None,
    settings: config.Config,
) -> State:
    """Takes everything back to the latest checkpoint; to the beginning where there is none."""
    if (step := checkpoints.latest()) is None:
        return State.fresh(settings.memory)
    learner.state, data = checkpoints.restore(step, learner.state)
    if corpus is not None:
        corpus.set_state(data["corpus"])
    return State.from_json(data["selfplay"], settings.memory)


async def _iterations(
    cycle: Cycle,
    learner: Learner,
    corpus: corpora.Corpus | None,
    checkpoints: Checkpoints,
    look: Callable[[int], Awaitable[None]],
) -> AsyncGenerator[dict[str, Any]]:
    """Runs what is left of the run, saving as the config says; gives each iteration's metrics.

    Args:
      look: evaluates the policy after so many iterations; what has been done of it costs nothing.
    """
    settings, state = cycle.settings, cycle.state

    def snapshot() -> dict[str, Any]:
        position = corpus.get_state() if corpus else None
        return {"selfplay": state.to_json(), "corpus": position}

    before = snapshot()

    def settled() -> None:
        nonlocal before
        before = snapshot()

    async def evaluate(done: int) -> None:
        every, last = settings.evaluation.every, done == settings.iterations
        if every and (last or done % every == 0):
            try:
                await look(done)
            except asyncio.CancelledError:
                if checkpoints.latest() != done:
                    checkpoints.save(done, learner.state, before)
                raise

    try:
        await evaluate(state.iteration)
        while (begun := state.iteration) < settings.iterations:
            try:
                row = await cycle.run_iteration(settled)
            except asyncio.CancelledError:
                await cycle.exchange.stop()
                # Learning is not cancelled: who was, while waiting, has not learned from ``begun``.
                if checkpoints.latest() != begun:
                    checkpoints.save(begun, learner.state, before)
                raise
            yield row
            done = begun + 1
            if done % settings.checkpoint.every == 0 or done == settings.iterations:
                checkpoints.save(done, learner.state, before)
            await evaluate(done)
    finally:
        await cycle.stop()


def _corpus(settings: config.Config, exchange: Exchange) -> corpora.Corpus | None:
    """This process's share of the documents; None where nobody needs any."""
    wanted = settings.corpus
    if not wanted.source or settings.pool.source or settings.tasks.module:
        return None
    shard = (exchange.index, exchange.count)
    return corpora.load(wanted.source, settings.seed, wanted.fields, wanted.data_dir, shard)


def _supply(settings: config.Config, records: Records | None, console: Console) -> Supply | None:
    """A pool that environments come from; None = there is none."""
    if not settings.pool.source:
        return None
    pool = pools.distinct(pools.read(settings.pool.source))
    if records:
        records.pool(pool)
    wrong = f", {pools.told(pool.bad_rows)}" if pool.bad_rows else ""
    console.print(f"pool of {len(pool.programs)} environments{wrong}", markup=False)
    return Pooled(settings, pool, records or Unrecorded())


@contextlib.contextmanager
def claim(
    workdir: Path, settings: config.Config, console: Console, allow_config_change: bool = False
) -> Iterator[None]:
    """Holds the run directory for this process; writes the config, or compares it with the run's.

    Where nothing has been made yet, the new config replaces an old one.

    Raises:
      config.ConfigError: it is no directory, another process holds it, or it holds a run with
        other settings.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise config.ConfigError(f"--workdir={workdir}: is a file; name a directory") from error
    with (workdir / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise config.ConfigError(
                f"--workdir={workdir}: another process is training here; wait for it or name "
                "another directory"
            ) from error
        _compare(workdir, settings, console, allow_config_change)
        yield


def _compare(workdir: Path, settings: config.Config, console: Console, allow: bool) -> None:
    path = workdir / "config.json"
    wanted = json.loads(json.dumps(config.to_dict(settings)))
    begun = (workdir / policy.INITIAL).exists() or (workdir / "metrics.jsonl").exists()
    if begun and path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        differences = [
            f"  config.{name}: {old!r} there, {new!r} asked for"
            for name, old, new in config.differences(found, wanted)
            if name not in MAY_CHANGE
        ]
        shown = "\n".join(differences)
        if differences and not allow:
            raise config.ConfigError(
                f"{workdir} holds a run with other settings; use a new --workdir, the same "
                f"settings, or --allow-config-change to continue with the new ones:\n{shown}"
            )
        if differences:
            console.print(f"settings change:\n{shown}", markup=False, highlight=False)
    temporary = workdir / "config.json.tmp"
    temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def refuse_unknown_settings(arguments: Sequence[str]) -> None:
    """Ends with one line, and the nearest name, on a ``--config.NAME`` that does not exist."""
    for argument in arguments:
        name = argument.lstrip("-").partition("=")[0]
        if name.startswith("config.") and not name.startswith("config.model.architecture."):
            try:
                config.require_known(name.removeprefix("config."))
            except config.ConfigError as error:
                sys.exit(f"ConfigError: {error}")


def _end(console: Console) -> None:
    console.show_cursor()  # One of several processes leaves without a word to the live view.
    processes.end(0)


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache.folder("compiled")))
    console = Console()
    try:
        settings = config.from_config_dict(_CONFIG.value)
        validation.modes(settings.validation)
        if _DISTRIBUTED.value:
            processes.join(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        signal.signal(signal.SIGTERM, lambda *_: _end(console))  # Until there is something to save.
        asyncio.run(train(settings, Path(_WORKDIR.value), console, _ALLOW_CONFIG_CHANGE.value))
    except (
        Broken,
        CheckpointError,
        EnvironmentFault,
        FloatingPointError,
        HostFault,
        config.ConfigError,
        corpora.CorpusError,
        Mixed,
        ModelError,
        NoHost,
        NoServer,
        TemplateError,
        InsufficientTierError,
        processes.ProcessFault,
        rows.SourceError,
        summary.RunFailed,
    ) as error:
        console.print(
            f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True
        )
        processes.end(1)
    except Exception:
        traceback.print_exc()
        processes.end(1)


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    refuse_unknown_settings(sys.argv[1:])
    app.run(main)
