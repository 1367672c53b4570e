"""The supervised stage before self-play: teach once, keep the result, copy it into each run.

The learner and the renderer are those of self-play, used for imitation. The result lies in the
user's cache under a fingerprint of everything that decides it. A stage that was interrupted goes
on from its last checkpoint.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import math
import pathlib
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from spade_jax import cache, config
from spade_jax.data import corpus
from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.learner.packing import Trajectory
from spade_jax.learner.step import Learner
from spade_jax.models import huggingface, loading, transformer
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox import placement, tool_env
from spade_jax.selfplay import prompts
from spade_jax.selfplay.phases import Progress
from spade_jax.selfplay.prompts import tools as tool_prompts
from spade_jax.warm_start import games, tokenizer, tools
from spade_jax.warm_start.lesson import Example, Lesson, build, texts, tokenize

LESSONS: dict[str, Lesson] = {"games": games, "tools": tools}
"""By setting."""
DECISIVE = ("beta1", "beta2", "weight_decay", "clip_norm")
"""Learner settings that matter to imitation."""
CHECKPOINT_EVERY = 50
"""Updates between checkpoints of the stage."""


PLAY_WEIGHT = 3.0
"""Weight of a played token beside a written one."""
SHORTEST_ROW = 63
"""Longest lesson for which rows of 64 tokens are made."""
ROW_FILL = 0.78
"""Share of a row's places that lessons fill when packed."""


def taught(settings: config.Config, folder: pathlib.Path, progress: Progress) -> None:
    """Puts the taught model and its tokenizer into ``folder``, which must not exist.

    The folder is in Hugging Face format and appears complete or not at all.
    """
    place = cache_folder(settings) / fingerprint(settings)
    place.mkdir(parents=True, exist_ok=True)
    finished = place / "model"
    with _lock(place / "lock"):
        if not finished.exists():
            _teach_into(finished, settings, place / "checkpoints", progress)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    shutil.copytree(finished, unfinished, dirs_exist_ok=True)
    unfinished.chmod(0o755)
    unfinished.rename(folder)


def cache_folder(settings: config.Config) -> pathlib.Path:
    """Where taught models are kept."""
    if settings.warm_start.cache:
        return pathlib.Path(settings.warm_start.cache)
    return cache.folder("warm_start")


def fingerprint(settings: config.Config) -> str:
    """Names everything that decides the result: settings, seed, and the texts of this package."""
    wanted = settings.designer.prompts
    decisive = {
        "setting": settings.setting,
        "seed": settings.seed,
        "model": dataclasses.asdict(settings.model),
        "learner": [getattr(settings.learner, name) for name in DECISIVE],
        "warm_start": dataclasses.asdict(dataclasses.replace(settings.warm_start, cache="")),
        "corpus": settings.corpus.source,
        "skills": settings.schedule.skills,
        "prompts": [prompts.digest(wanted), prompts.digest(f"tools_{wanted}")],
        "request": [
            settings.designer.difficulty,
            settings.designer.prefill,
            settings.agent.max_turns,
            settings.hints.words,
            settings.memory.exemplars,
            settings.memory.avoid,
        ],
    }
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
    package = pathlib.Path(__file__).parent
    used = (prompts.__file__, tool_prompts.__file__, tool_env.__file__)
    decisive_files = [*sorted(package.rglob("*.py")), *map(pathlib.Path, used)]
    if pathlib.Path(settings.corpus.source).is_file():
        decisive_files.append(pathlib.Path(settings.corpus.source))
    for file in decisive_files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def teach(
    learner: Learner,
    lessons: Sequence[Trajectory],
    settings: config.WarmStart,
    seed: int,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> list[float]:
    """Imitation for ``settings.steps`` updates; loss of each update made here, nats per token.

    With ``checkpoints`` the stage goes on after the newest one.
    """
    start = 0
    if checkpoints is not None and (step := checkpoints.latest()) is not None:
        learner.state, _ = checkpoints.restore(step, learner.state)
        start = step
    losses = []
    progress.phase("teaching", settings.steps - start)
    for step, batch in enumerate(batches(lessons, settings, seed)):
        if step < start:
            continue
        metrics = learner.supervise(batch, learning_rate(step, settings))
        losses.append(metrics["loss"])
        progress.advance()
        if checkpoints is not None and (step + 1) % CHECKPOINT_EVERY == 0:
            checkpoints.save(step + 1, learner.state, {})
    return losses


def learning_rate(step: int, settings: config.WarmStart) -> float:
    """Cosine decay to 0 after a linear warm-up over the first twentieth of the steps."""
    warm = (step + 1) / max(1, settings.steps // 20)
    return settings.learning_rate * min(warm, (1 + math.cos(math.pi * step / settings.steps)) / 2)


def batches(
    lessons: Sequence[Trajectory], settings: config.WarmStart, seed: int
) -> Iterator[list[Trajectory]]:
    """``settings.steps`` batches of about ``settings.batch_tokens`` tokens.

    All lessons are seen once in each pass, in an order that is drawn anew for each pass.
    """
    rng = random.Random(seed)
    waiting: list[int] = []
    for _ in range(settings.steps):
        batch: list[Trajectory] = []
        tokens = 0
        while True:
            if not waiting:
                waiting = rng.sample(range(len(lessons)), len(lessons))
            lesson = lessons[waiting[-1]]
            if batch and tokens + len(lesson.tokens) > settings.batch_tokens:
                break
            batch.append(lesson)
            tokens += len(lesson.tokens)
            waiting.pop()
        yield batch


def lessons(
    examples: Sequence[Example], renderer: Renderer, progress: Progress
) -> list[Trajectory]:
    """Examples as the learner sees them.

    Every trained token counts the same, but in plays, which have few, :data:`PLAY_WEIGHT` times.
    """
    made = []
    progress.phase("lesson: tokens", len(examples))
    for example in examples:
        item = tokenize(example, renderer)
        weight = sum(item.trained) * (PLAY_WEIGHT if example.kind == "play" else 1.0)
        made.append(
            Trajectory(item.tokens, item.trained, [0.0] * len(item.tokens), 0.0, weight=weight)
        )
        progress.advance()
    return made


def _teach_into(
    folder: pathlib.Path, settings: config.Config, checkpoints: pathlib.Path, progress: Progress
) -> None:
    examples = _in_new_loop(_examples(settings, progress))
    progress.phase("lesson: tokenizer", 1)
    model, renders = initial(settings, examples)
    progress.advance()
    made = lessons(examples, Renderer(renders), progress)
    learner = Learner(model, imitation(settings, made), ("lessons",))
    with Checkpoints(checkpoints, keep=1) as kept:
        teach(learner, made, settings.warm_start, settings.seed, progress, kept)
    huggingface.save(folder, model.config, learner.params, renders)
    shutil.rmtree(checkpoints)


async def _examples(settings: config.Config, progress: Progress) -> list[Example]:
    documents = corpus.load(settings.corpus.source or "pydoc", settings.seed).documents
    async with placement.environment_host(settings.sandbox) as host:
        return await build(LESSONS[settings.setting], settings, documents, host, progress)


def _in_new_loop(work: Any) -> Any:
    """Result of a coroutine, whether or not the caller already runs in an event loop."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


def initial(
    settings: config.Config, examples: Sequence[Example]
) -> tuple[transformer.Transformer, PreTrainedTokenizerFast]:
    """The model to be taught, with a tokenizer made for the examples if it starts from nothing.

    Raises:
      config.ConfigError: a pretrained model that comes without a tokenizer.
    """
    source = settings.model
    if source.source != "scratch":
        model, given = loading.load(source, settings.seed)
        if given is None:
            raise config.ConfigError(
                f"config.model.source: {source.source!r} has no tokenizer; name one in "
                "config.model.tokenizer"
            )
        return model, given
    format_ = LESSONS[settings.setting].FORMAT
    made = tokenizer.train(texts(examples), settings.warm_start.vocabulary, format_)
    architecture = {
        **source.architecture,
        "vocab_size": len(made),
        "eos_token_id": made.eos_token_id,
        "pad_token_id": made.pad_token_id,
    }
    model, _ = loading.load(dataclasses.replace(source, architecture=architecture), settings.seed)
    return model, made


def imitation(settings: config.Config, lessons: Sequence[Trajectory]) -> config.Learner:
    """The learner's settings for this stage: one clip, no reference, rows made for the lessons.

    Attention costs the square of a row, so rows are as short as the longest lesson allows, and as
    many as hold one batch.
    """
    longest = max(len(lesson.tokens) for lesson in lessons)
    row_length = 1 << max(SHORTEST_ROW, longest - 1).bit_length()
    places = settings.warm_start.batch_tokens / ROW_FILL
    return dataclasses.replace(
        settings.learner,
        role_weighting="paper",
        kl_coefficient=0.0,
        row_length=row_length,
        rows=max(1, math.ceil(places / row_length)),
    )


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> Iterator[None]:
    """Keeps two runs from teaching the same model at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
