"""A policy scored on benchmarks: its weights found, a sampler made, results kept and shown."""

import contextlib
import dataclasses
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from rich.console import Console

import spade_jax
from spade_jax import cache, config, policy
from spade_jax.benchmarks import published, registry, runner, scores
from spade_jax.benchmarks.endpoint import EndpointPolicy
from spade_jax.benchmarks.interface import Absent, Benchmark, Policy
from spade_jax.benchmarks.policy import SamplerPolicy
from spade_jax.benchmarks.results import Results
from spade_jax.benchmarks.user import SELF, User
from spade_jax.learner.checkpoint import CheckpointError, Checkpoints
from spade_jax.learner.step import Learner
from spade_jax.models import loading, sharding
from spade_jax.models.config import ModelError
from spade_jax.models.transformer import Transformer
from spade_jax.progress import RunProgress
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.native.sampler import NativeSampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sampling.sglang import SGLangSampler
from spade_jax.selfplay.batch import ROLES
from spade_jax.warm_start import stage

SHOWN = 10
"""How many of the items lost without being judged are named on the terminal."""


class Progress(Protocol):
    """Where an evaluation says what it does; see :class:`RunProgress`."""

    console: Console

    def phase(self, name: str, total: int) -> None: ...

    def advance(self) -> None: ...

    def step(self, message: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is to be scored.

    Attributes:
      benchmarks: names of benchmarks and groups.
      limit: items of each benchmark; 0 = all.
      data: folder with the files of benchmarks that need some.
      user: who plays the user in those that have one.
    """

    benchmarks: Sequence[str]
    limit: int = 0
    data: Path = dataclasses.field(default_factory=lambda: cache.folder("benchmarks"))
    user: User = SELF

    def find(self) -> list[Benchmark]:
        """The benchmarks; see :func:`registry.find`."""
        return registry.find(self.benchmarks, self.data, self.user)


@dataclasses.dataclass(frozen=True)
class Weights:
    """A policy's model, its weights, its tokenizer, and what it is called."""

    name: str
    model: Transformer
    params: nnx.State
    tokenizer: Any


def load(settings: config.Config, workdir: Path, checkpoint: str, progress: RunProgress) -> Weights:
    """The policy to score; ``checkpoint`` as on the command line.

    Raises:
      CheckpointError, ConfigError, ModelError: it is not there, or is none.
    """
    mesh = sharding.make_mesh(settings.mesh) if settings.mesh != config.Mesh() else None
    if checkpoint.startswith("hf:"):
        source = checkpoint.removeprefix("hf:")
        wanted = dataclasses.replace(settings.model, source=source, tokenizer="")
        model, tokenizer = loading.load(wanted, settings.seed, mesh)
        if tokenizer is None:
            raise ModelError(f"--checkpoint={checkpoint}: there is no tokenizer beside the weights")
        return Weights("hf-" + slug(source), model, nnx.split(model)[1], tokenizer)
    if not re.fullmatch(r"initial|\d*", checkpoint):
        raise config.ConfigError(f"--checkpoint={checkpoint}: give a STEP, initial or hf:PATH")
    if checkpoint != "initial" and (workdir / "checkpoints").is_dir():
        with Checkpoints(workdir / "checkpoints", keep=1, writable=False) as checkpoints:
            step = int(checkpoint) if checkpoint else checkpoints.latest()
            if step is not None:
                model, tokenizer = policy.load(settings, workdir, mesh)
                learner = Learner(model, settings.learner, ROLES, mesh)
                learner.state, _ = checkpoints.restore(step, learner.state)
                return Weights(f"step-{step}", model, learner.params, tokenizer)
    if checkpoint not in ("", "initial"):
        raise CheckpointError(f"{workdir}: no checkpoints, so no step {checkpoint}")
    if settings.warm_start.enabled and not (workdir / policy.INITIAL).exists():
        # Not into the run directory, which may have to begin with other settings.
        with tempfile.TemporaryDirectory() as folder:
            stage.taught(settings, Path(folder) / policy.INITIAL, progress)
            model, tokenizer = policy.load(settings, Path(folder), mesh)
    else:
        model, tokenizer = policy.load(settings, workdir, mesh)
    return Weights("initial", model, nnx.split(model)[1], tokenizer)


def fingerprint(params: nnx.State) -> str:
    """Tells weights apart: a digest over, for each array, its place, shape, dtype and bit sum."""

    @jax.jit
    def bit_sum(array: jax.Array) -> jax.Array:
        words = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[array.dtype.itemsize]
        return jnp.sum(jax.lax.bitcast_convert_type(array, words), dtype=jnp.uint32)

    digest = hashlib.sha256()
    for place, array in jax.tree.leaves_with_path(params):
        facts = (jax.tree_util.keystr(place), array.shape, str(array.dtype), int(bit_sum(array)))
        digest.update(repr(facts).encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def sampling(weights: Weights, settings: config.Config, out: Path) -> Iterator[Sampler]:
    """A sampler of the policy, as ``config.sampler`` says.

    Raises:
      ConfigError: its cache cannot hold one dialogue.
      NoServer: there is no server.
    """
    wanted = settings.sampler
    sampler: NativeSampler | SGLangSampler
    if wanted.kind == "native":
        try:
            sampler = NativeSampler(weights.model, wanted, settings.seed)
        except ValueError as error:
            raise config.ConfigError(str(error)) from error
        sampler.update(weights.params, 0)
        yield sampler
        return
    dtype = settings.model.compute_dtype
    architecture, tokenizer = weights.model.config, weights.tokenizer
    with SGLangSampler(architecture, tokenizer, wanted, dtype, settings.seed, out) as sampler:
        sampler.update(weights.params, 0)
        yield sampler


def facts_of(settings: config.Config, name: str, params: nnx.State) -> dict[str, Any]:
    """What a protocol says of a policy that is sampled here, beside its prompts."""
    return {
        "name": name,
        "weights": fingerprint(params),
        "compute_dtype": settings.model.compute_dtype,
        "thinking": settings.model.thinking,
        "sampler": settings.sampler.kind,
        "seed": settings.seed,
        "spade_jax": spade_jax.__version__,
    }


def jobs_of(sampler: config.Sampler) -> int:
    """Dialogues held at once."""
    return sampler.slots if sampler.kind == "native" else sampler.in_flight


async def score(
    benchmark: Benchmark,
    player: Policy,
    facts: dict[str, Any],
    folder: Path,
    limit: int,
    jobs: int,
    progress: Progress,
) -> dict[str, Any]:
    """Scores a policy on what is left of a benchmark; prints the table, gives the summary.

    Raises:
      Absent: the benchmark's data is not here.
      Mixed: ``folder`` holds results made otherwise.
      Broken: the policy answers nobody any more.
    """
    items = benchmark.items()
    chosen = runner.choose(items, limit)
    decoding = dataclasses.asdict(benchmark.params)
    protocol = {"benchmark": benchmark.name} | benchmark.protocol()
    protocol |= {"decoding": decoding, "prompts": player.protocol(), "policy": facts}
    with Results(folder, protocol) as results:
        left = [item for item in chosen if item.name not in results.outcomes]
        progress.phase(benchmark.title, len(left))
        await runner.run(benchmark, left, player, jobs, results.add, progress)
        outcomes = [results.outcomes[item.name] for item in chosen]
        floors = benchmark.floors()
        label = protocol.get("label", "")
        summary = scores.summary(items, outcomes) | {"floors": floors, "label": label}
        path = results.finish(summary)
    beside = {**({} if label else published.beside(benchmark.name)), **floors}
    title = f"{benchmark.title} ({label})" if label else benchmark.title
    progress.console.print(scores.table(title, items, outcomes, beside))
    _list(summary["faults"], progress.console)
    progress.console.print(f"{benchmark.name}: written to {path}", highlight=False, soft_wrap=True)
    return summary


def _list(faults: dict[str, str], console: Console) -> None:
    """Names what was lost without being judged."""
    for item, fault in list(faults.items())[:SHOWN]:
        console.print(f"  lost: {item}: {fault}", highlight=False, markup=False, soft_wrap=True)
    if len(faults) > SHOWN:
        console.print(f"  and {len(faults) - SHOWN} more, listed in result.json")


async def score_all(
    wanted: Wanted,
    player: Policy,
    facts: dict[str, Any],
    out: Path,
    jobs: int,
    progress: Progress,
) -> published.Results:
    """Scores a policy on every benchmark whose data is here, and says of the others why not.

    Raises:
      ConfigError: there is no benchmark of a name.
    """
    results: dict[str, dict[str, Any] | str] = {}
    for benchmark in wanted.find():
        name = benchmark.name
        try:
            results[name] = await score(
                benchmark, player, facts, out / name, wanted.limit, jobs, progress
            )
            progress.step(f"{name}: scored")
        except Absent as absent:
            results[name] = absent.reason
            progress.step(f"{name}: SKIPPED, not scored: {absent}")
    for table in published.TABLES:
        if any(isinstance(results.get(name), dict) for name in published.names(table)):
            progress.console.print(published.overview(table, results))
    return results


async def evaluate(
    settings: config.Config,
    workdir: Path,
    wanted: Wanted,
    checkpoint: str,
    out: Path | None,
    console: Console,
) -> published.Results:
    """Scores a policy that is sampled here; ``checkpoint`` as on the command line."""
    count = len(wanted.find())
    with RunProgress("benchmark", count, console=console) as progress:
        weights = load(settings, workdir, checkpoint, progress)
        out = out or workdir / "evaluation" / weights.name
        options = {"enable_thinking": settings.model.thinking}
        renderer = Renderer(weights.tokenizer, template_options=options)
        facts = facts_of(settings, weights.name, weights.params)
        with sampling(weights, settings, out) as sampler:
            player = SamplerPolicy(sampler, renderer, settings.sampler.context)
            return await score_all(wanted, player, facts, out, jobs_of(settings.sampler), progress)


class _Within:
    """The bars of a run, for an evaluation within one of its steps."""

    def __init__(self, progress: RunProgress):
        self.console = progress.console
        self.phase, self.advance = progress.phase, progress.advance

    def step(self, message: str) -> None:
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)


async def evaluate_within(
    settings: config.Config,
    workdir: Path,
    iteration: int,
    params: nnx.State,
    sampler: Sampler,
    renderer: Renderer,
    progress: RunProgress,
) -> published.Results:
    """Scores the policy of a run under way, before ``iteration``, as its config asks.

    Results lie where those of ``evaluate`` do, which would go on with them.
    """
    asked = settings.evaluation
    data: dict[str, Any] = {"data": Path(asked.data)} if asked.data else {}
    wanted = Wanted(asked.benchmarks, asked.limit, **data)
    name = f"step-{iteration}" if iteration else "initial"
    player = SamplerPolicy(sampler, renderer, settings.sampler.context)
    facts, out = facts_of(settings, name, params), workdir / "evaluation" / name
    jobs = jobs_of(settings.sampler)
    return await score_all(wanted, player, facts, out, jobs, _Within(progress))


async def evaluate_endpoint(
    settings: config.Config,
    workdir: Path,
    wanted: Wanted,
    url: str,
    model: str,
    out: Path | None,
    console: Console,
) -> published.Results:
    """Scores what answers at ``url``; of the settings the seed and ``sampler``'s client count."""
    count, sampler = len(wanted.find()), settings.sampler
    with RunProgress("benchmark", count, console=console) as progress:
        async with EndpointPolicy(url, model, settings.seed, sampler.timeout) as player:
            name = "endpoint-" + slug(player.model)
            facts = {
                "name": name,
                "url": player.url,
                "model": player.model,
                "seed": settings.seed,
                "spade_jax": spade_jax.__version__,
            }
            out = out or workdir / "evaluation" / name
            return await score_all(wanted, player, facts, out, sampler.in_flight, progress)


def slug(name: str) -> str:
    """The name as part of a path."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")
