"""The supervised stage before self-play with tools: that of games, with this package's lesson.

The result lies in the same cache, under a fingerprint that covers this package too. A stage that
was interrupted goes on from its last checkpoint.
"""

import asyncio
import concurrent.futures
import dataclasses
import fcntl
import hashlib
import pathlib
import shutil
import tempfile
from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.learner.packing import Trajectory
from spade_jax.learner.step import Learner
from spade_jax.models import huggingface, loading, transformer
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox import placement, tool_env
from spade_jax.selfplay import prompts
from spade_jax.selfplay.prompts import tools as tool_prompts
from spade_jax.tool_lesson import examples as examples_
from spade_jax.tool_lesson import tokenizer as tokenizer_
from spade_jax.warm_start import stage
from spade_jax.warm_start.examples import Example
from spade_jax.warm_start.stage import Progress


def taught(settings: config.Config, folder: pathlib.Path, progress: Progress) -> None:
    """Puts the taught model and its tokenizer into ``folder``, which must not exist.

    The folder is in Hugging Face format and appears complete or not at all.
    """
    place = stage.cache_folder(settings) / fingerprint(settings)
    place.mkdir(parents=True, exist_ok=True)
    finished = place / "model"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs do not teach the same model at once
        if not finished.exists():
            _teach_into(finished, settings, place / "checkpoints", progress)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    shutil.copytree(finished, unfinished, dirs_exist_ok=True)
    unfinished.chmod(0o755)
    unfinished.rename(folder)


def fingerprint(settings: config.Config) -> str:
    """Names everything that decides the result: what decides that of games, and what differs."""
    digest = hashlib.sha256(stage.fingerprint(settings).encode())
    digest.update(prompts.digest(f"tools_{settings.designer.prompts}").encode())
    package = pathlib.Path(__file__).parent
    others = map(pathlib.Path, (tool_prompts.__file__, tool_env.__file__))
    for file in (*others, *sorted(package.rglob("*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def lessons(examples: Sequence[Example], renderer: Renderer) -> list[Trajectory]:
    """As :func:`spade_jax.warm_start.stage.lessons`, with the tools that a play is offered."""
    made = []
    for example in examples:
        item = examples_.tokenize(example, renderer)
        weight = sum(item.trained) * (stage.PLAY_WEIGHT if example.kind == "play" else 1.0)
        made.append(
            Trajectory(item.tokens, item.trained, [0.0] * len(item.tokens), 0.0, weight=weight)
        )
    return made


def initial(
    settings: config.Config, examples: Sequence[Example]
) -> tuple[transformer.Transformer, PreTrainedTokenizerFast]:
    """The model to be taught, with a tokenizer made for the examples if it starts from nothing."""
    source = settings.model
    if source.source != "scratch":
        return stage.initial(settings, examples)
    tokenizer = tokenizer_.train(examples_.texts(examples), settings.warm_start.vocabulary)
    architecture = {
        **source.architecture,
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model, _ = loading.load(dataclasses.replace(source, architecture=architecture), settings.seed)
    return model, tokenizer


def _teach_into(
    folder: pathlib.Path, settings: config.Config, checkpoints: pathlib.Path, progress: Progress
) -> None:
    progress.phase("writing examples", 1)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:  # the caller may run in a loop
        examples = executor.submit(asyncio.run, _examples(settings)).result()
    progress.advance()
    model, tokenizer = initial(settings, examples)
    made = lessons(examples, Renderer(tokenizer))
    learner = Learner(model, stage.imitation(settings, made), ("lessons",))
    with Checkpoints(checkpoints, keep=1) as kept:
        stage.teach(learner, made, settings.warm_start, settings.seed, progress, kept)
    huggingface.save(folder, model.config, learner.params, tokenizer)
    shutil.rmtree(checkpoints)


async def _examples(settings: config.Config) -> list[Example]:
    documents = corpus.load(settings.corpus.source or "pydoc", settings.seed).documents
    async with placement.environment_host(settings.sandbox) as host:
        return await examples_.build(settings, documents, host)
