"""The teaching set: how a designer, a hint writer and a player of the loop should reply.

Prompts are made by the functions that the loop itself uses, so what is taught is what is asked.
"""

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from typing import Literal

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import prompts
from spade_jax.warm_start.families import FAMILIES, Family, Game

Kind = Literal["designer", "hint", "play"]

ABILITIES = (1.0, 1.0, 1.0, 0.9, 0.7)
"""Scripted players are drawn from these, so that the model wins some of its games, not all."""
PLAYS_PER_GAME = 4
MOST_SHOWN = 2
"""Exemplars, and environments to avoid, in one request: a skill has five families."""
HINTED = 0.65
"""Share of plays with the hint."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A conversation; all messages of the assistant are to be learnt."""

    kind: Kind
    messages: tuple[dict[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Exemplar:
    """A game as the designer's memory would show it."""

    environment: str
    skill: str
    snippet: str
    win_rate: float
    regret: float | None


@dataclasses.dataclass(frozen=True)
class Tokens:
    """An example as tokens; ``trained`` marks what is to be learnt."""

    tokens: list[int]
    trained: list[bool]


async def build(
    settings: config.Config, documents: Sequence[corpus.Document], host: Host
) -> list[Example]:
    """The whole teaching set, the same for the same settings and documents."""
    warm = settings.warm_start
    rng = random.Random(settings.seed)
    examples = [designer_example(settings, documents, rng) for _ in range(warm.programs)]
    examples += [hint_example(settings, documents, rng) for _ in range(warm.hints)]
    games = [
        create(rng.choice(FAMILIES), documents, rng)
        for _ in range(-(-warm.plays // PLAYS_PER_GAME))
    ]
    seeds = [rng.getrandbits(32) for _ in games]
    rooms = asyncio.Semaphore(ROOMS)

    async def plays(game: Game, seed: int) -> list[Example]:
        async with rooms:
            return await play_examples(settings.designer.prompts, game, host, seed)

    played = await asyncio.gather(*map(plays, games, seeds))
    return examples + [example for some in played for example in some][: warm.plays]


ROOMS = 16
"""Games open in the sandbox at once."""


def create(family: Family, documents: Sequence[corpus.Document], rng: random.Random) -> Game:
    """A game of the family about some document."""
    return family.create(rng, noun(rng.choice(documents)))


def noun(document: corpus.Document) -> str:
    """What a program takes over from its document: the title, as the small prompts show it."""
    return prompts.opening_words(document.title, 3)


def designer_example(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Example:
    """A request as the loop would put it, answered by a game of a family it does not show."""
    skill = rng.choice(settings.schedule.skills)
    families = [family for family in FAMILIES if family.skill == skill]
    rng.shuffle(families)
    document = rng.choice(documents)
    target = families.pop().create(rng, noun(document))
    memory = settings.memory
    shown = rng.randint(0, min(memory.exemplars, MOST_SHOWN))
    exemplars = [
        _remembered(create(families.pop(), documents, rng), rng.uniform(0.15, 0.85), rng)
        for _ in range(shown)
    ]
    avoid = [
        _remembered(create(families.pop(), documents, rng), rng.choice([0.0, 0.05, 0.95, 1.0]), rng)
        for _ in range(rng.randint(0, min(memory.avoid, MOST_SHOWN)))
    ]
    messages = prompts.designer(
        settings.designer.prompts,
        skill=skill,
        difficulty=settings.designer.difficulty,
        document=document,
        exemplars=exemplars,
        avoid=avoid,
        max_turns=settings.agent.max_turns,
    )
    return _example("designer", messages, f"```python\n{target.source}```")


def hint_example(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Example:
    """A source and the hint that its author would give."""
    game = create(rng.choice(FAMILIES), documents, rng)
    messages = prompts.hint(
        settings.designer.prompts,
        skill=game.skill,
        source=game.source,
        words=settings.hints.words,
    )
    return _example("hint", messages, game.hint)


async def play_examples(prompt_set: str, game: Game, host: Host, seed: int) -> list[Example]:
    """Episodes of scripted players of mixed ability in both arms."""
    rng = random.Random(seed)
    handle = await host.open(game.source)
    try:
        return [await _play(prompt_set, game, host, handle, rng) for _ in range(PLAYS_PER_GAME)]
    finally:
        await host.close(handle)


async def _play(
    prompt_set: str, game: Game, host: Host, handle: int, rng: random.Random
) -> Example:
    hint = game.hint if rng.random() < HINTED else None
    player = game.player(rng.choice(ABILITIES), random.Random(rng.getrandbits(32)), hint)
    observation = await host.reset(handle, rng.getrandbits(31))
    messages = prompts.agent(prompt_set, observation=observation, hint=hint)
    while True:
        action = "\\boxed{" + player.act(observation) + "}"
        messages.append({"role": "assistant", "content": action})
        result = await host.step(handle, action)
        if result.terminated or result.truncated:
            return Example("play", tuple(messages))
        observation = result.observation
        messages.append({"role": "user", "content": observation})


def tokenize(example: Example, renderer: Renderer) -> Tokens:
    """The tokens that the loop would see if the policy had replied so."""
    messages = list(example.messages)
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    tokens = renderer.prompt(messages[:first])
    trained = [False] * len(tokens)
    while first < len(messages):
        reply = renderer.reply(messages[first]["content"])
        following = first + 1
        while following < len(messages) and messages[following]["role"] != "assistant":
            following += 1
        between = []
        if following < len(messages):
            between = renderer.extend(reply, messages[first + 1 : following])
        tokens += reply + between
        trained += [True] * len(reply) + [False] * len(between)
        first = following
    return Tokens(tokens, trained)


def _example(kind: Kind, messages: prompts.Messages, reply: str) -> Example:
    return Example(kind, (*messages, {"role": "assistant", "content": reply}))


def _remembered(game: Game, win_rate: float, rng: random.Random) -> Exemplar:
    return Exemplar(game.family, game.skill, game.source, win_rate, rng.uniform(0.0, 0.5))
