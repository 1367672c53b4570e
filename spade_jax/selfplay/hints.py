"""The hint for an accepted source: who writes it, and what it is measured by."""

import ast
import asyncio
import dataclasses
import itertools
import random
import re
from collections.abc import Mapping, Sequence

from spade_jax import config
from spade_jax.environments import checks, validation
from spade_jax.environments.parsing import without_thinking
from spade_jax.sampling.interface import Request, Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay import endpoint, prompts, schedule
from spade_jax.selfplay.decoding import sampling_params
from spade_jax.selfplay.exchange import Alone, Exchange, all_results, dealt
from spade_jax.selfplay.setting import setting_of
from spade_jax.selfplay.state import Environment

CONSTANT = "HINT"
"""Name of the constant in which a program carries its hint, for author 'environment'."""


async def write_hints(
    environments: Sequence[Environment],
    solutions: Mapping[str, Sequence[Sequence[str]]],
    sampler: Sampler,
    renderer: Renderer,
    settings: config.Config,
    exchange: Exchange | None = None,
) -> tuple[list[Environment], int]:
    """The environments with their hints, and the tokens that the policy sampled for them.

    Hint tokens are never trained. An environment whose hint failed keeps ``hint=None``: it is
    without regret. Several processes deal out the environments.

    Args:
      solutions: SHA -> known solutions, to see whether the hint gives one away.
    """
    exchange = exchange or Alone()
    mine = dealt(environments, exchange)
    own = await _written(mine, sampler, renderer, settings)
    written = await all_results(exchange, "hints", own)
    hinted = [
        _with_hint(environment, text, solutions.get(environment.sha, ()), settings)
        for environment, (text, _) in zip(environments, written, strict=True)
    ]
    return hinted, sum(tokens for _, tokens in written)


async def _written(
    environments: Sequence[Environment],
    sampler: Sampler,
    renderer: Renderer,
    settings: config.Config,
) -> list[tuple[str, int]]:
    """Text of each hint, '' where it failed, and the tokens that the policy sampled for it."""
    if settings.hints.author == "policy":
        return await _by_policy(environments, sampler, renderer, settings)
    if settings.hints.author == "environment":
        return [(own_hint(environment.source), 0) for environment in environments]
    texts = await asyncio.gather(
        *(asyncio.to_thread(endpoint.ask, messages, settings.hints)
          for messages in _messages(environments, settings))
    )  # fmt: skip
    return [(text, 0) for text in texts]


def _messages(
    environments: Sequence[Environment], settings: config.Config
) -> list[prompts.Messages]:
    set_, words = settings.designer.prompts, settings.hints.words
    return [
        setting_of(settings).prompts.hint(set_, skill=item.skill, source=item.source, words=words)
        for item in environments
    ]


async def _by_policy(
    environments: Sequence[Environment],
    sampler: Sampler,
    renderer: Renderer,
    settings: config.Config,
) -> list[tuple[str, int]]:
    """Texts and sampled tokens. A source that leaves no room for a hint gets none."""
    params = sampling_params(settings.hints, renderer)
    room = settings.sampler.context - params.max_tokens
    requests = {}
    for item, messages in zip(environments, _messages(environments, settings), strict=True):
        tokens = renderer.prompt(messages)
        if len(tokens) <= room:
            requests[item.sha] = Request(tokens, params, f"{item.written}/{item.sha[:16]}/hint")
    completions = await sampler.generate(list(requests.values())) if requests else []
    written = {}
    for sha, completion in zip(requests, completions, strict=True):
        whole = completion.finish_reason == "stop"
        text = without_thinking(renderer.decode(completion.tokens)) if whole else ""
        written[sha] = (text, len(completion.tokens))
    return [written.get(environment.sha, ("", 0)) for environment in environments]


def own_hint(source: str) -> str:
    """The text that the program assigns to ``HINT`` at its top level; '' if there is none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if CONSTANT in names and isinstance(node.value.value, str):
                return node.value.value
    return ""


def _with_hint(
    environment: Environment,
    text: str,
    solutions: Sequence[Sequence[str]],
    settings: config.Config,
) -> Environment:
    """Cut to ``hints.words``; refused where it gives a solution away and that is required."""
    words = list(re.finditer(r"\S+", text))[: settings.hints.words]
    hint = text[words[0].start() : words[-1].end()] if words else ""
    mode = validation.modes(settings.validation)[validation.HINT]
    if not hint or not solutions or mode == "off":
        return dataclasses.replace(environment, hint=hint or None)
    leaks = checks.gives_away(hint, solutions)
    refused = leaks and mode == "required"
    return dataclasses.replace(environment, hint=None if refused else hint, hint_leaks=leaks)


def with_placebos(
    environments: Sequence[Environment], settings: config.Config, iteration: int
) -> list[Environment]:
    """A fixed sample of ``hints.placebo`` environments gets a placebo beside its hint.

    A placebo has exactly as many words as the hint, taken from the hints for other environments of
    the same skill, in random order and over again if they are too few.
    """
    rng = random.Random(schedule.derive_seed(settings.seed, "placebo", iteration))
    hints = {item.sha: item.hint for item in environments if item.hint}
    donors = {
        item.sha: [
            hints[other.sha]
            for other in environments
            if other.skill == item.skill and other.sha != item.sha and other.sha in hints
        ]
        for item in environments
    }
    able = [sha for sha in hints if donors[sha]]
    sample = rng.sample(able, min(settings.hints.placebo, len(able)))
    placebos = {}
    for sha in sample:
        rng.shuffle(donors[sha])
        words = itertools.cycle(word for text in donors[sha] for word in text.split())
        count = len(hints[sha].split())
        placebos[sha] = " ".join(itertools.islice(words, count))
    return [dataclasses.replace(item, placebo=placebos.get(item.sha)) for item in environments]
