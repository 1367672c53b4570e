"""What a lesson is made of: conversations as designer, hint writer and player should hold them.

Games and tools have each their own requests, replies and players; how many there are of a kind,
and how they become tokens, is the same.
"""

import asyncio
import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import prompts
from spade_jax.selfplay.phases import Progress
from spade_jax.warm_start.families import Game
from spade_jax.warm_start.tokenizer import Format

Kind = Literal["designer", "hint", "play"]

ABILITIES = (1.0, 1.0, 1.0, 0.9, 0.7)
"""Scripted players are drawn from these, so that the model wins some of its plays, not all."""
PLAYS_PER_GAME = 4
ROOMS = 16
"""Games open in the sandbox at once."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A conversation; all messages of the assistant are to be learnt.

    Attributes:
      tools: schemas of what is offered in it.
    """

    kind: Kind
    messages: tuple[dict[str, str], ...]
    tools: Sequence[dict[str, Any]] = ()


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


class Lesson(Protocol):
    """What differs from setting to setting: :mod:`.games` and :mod:`.tools`.

    Requests are made by the functions that the loop itself uses, so what is taught is what is
    asked.
    """

    FORMAT: Format

    def designer_example(
        self, settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
    ) -> Example:
        """A request as the loop would put it, and a program that answers it."""
        ...

    def create(
        self, settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
    ) -> Game:
        """Some program of the run's skills about some document, with its hint and its player."""
        ...

    def hint_request(self, settings: config.Config, game: Game) -> prompts.Messages:
        """The request for its hint."""
        ...

    async def play(
        self, settings: config.Config, game: Game, host: Host, handle: int, rng: random.Random
    ) -> Example:
        """One play of a scripted player, in the environment that is open as ``handle``."""
        ...


async def build(
    lesson: Lesson,
    settings: config.Config,
    documents: Sequence[corpus.Document],
    host: Host,
    progress: Progress,
) -> list[Example]:
    """All examples, the same for the same settings and documents.

    ``progress`` sees a phase for each kind.
    """
    warm = settings.warm_start
    rng = random.Random(settings.seed)
    examples = []
    progress.phase("lesson: programs", warm.programs)
    for _ in range(warm.programs):
        examples.append(lesson.designer_example(settings, documents, rng))
        progress.advance()
    progress.phase("lesson: hints", warm.hints)
    for _ in range(warm.hints):
        game = lesson.create(settings, documents, rng)
        request = lesson.hint_request(settings, game)
        examples.append(answered("hint", request, game.hint))
        progress.advance()
    return examples + await _played(lesson, settings, documents, host, rng, progress)


async def _played(
    lesson: Lesson,
    settings: config.Config,
    documents: Sequence[corpus.Document],
    host: Host,
    rng: random.Random,
    progress: Progress,
) -> list[Example]:
    """All plays, some of each game."""
    wanted = settings.warm_start.plays
    games = [lesson.create(settings, documents, rng) for _ in range(-(-wanted // PLAYS_PER_GAME))]
    seeds = [rng.getrandbits(32) for _ in games]
    rooms = asyncio.Semaphore(ROOMS)

    async def plays(game: Game, seed: int) -> list[Example]:
        async with rooms:
            return await _plays(lesson, settings, game, host, seed, progress)

    progress.phase("lesson: plays", len(games) * PLAYS_PER_GAME)
    played = await asyncio.gather(*map(plays, games, seeds))
    return [example for some in played for example in some][:wanted]


async def _plays(
    lesson: Lesson,
    settings: config.Config,
    game: Game,
    host: Host,
    seed: int,
    progress: Progress,
) -> list[Example]:
    """Of players of mixed ability, in both arms."""
    rng = random.Random(seed)
    examples = []
    handle = await host.open(game.source, settings.agent.max_turns)
    try:
        for _ in range(PLAYS_PER_GAME):
            examples.append(await lesson.play(settings, game, host, handle, rng))
            progress.advance()
    finally:
        await host.close(handle)
    return examples


def answered(kind: Kind, request: prompts.Messages, reply: str) -> Example:
    """A request and its reply."""
    return Example(kind, (*request, {"role": "assistant", "content": reply}))


def noun(document: corpus.Document) -> str:
    """What a program takes over from its document: the title, as the small prompts show it."""
    return prompts.opening_words(document.title, 3)


def remembered(game: Game, win_rate: float, rng: random.Random) -> Exemplar:
    """A game that memory holds, of some regret."""
    return Exemplar(game.family, game.skill, game.source, win_rate, rng.uniform(0.0, 0.5))


def texts(examples: Sequence[Example]) -> list[str]:
    """All that the tokenizer is made for: messages, and tools as the chat template shows them."""
    found = [message["content"] for example in examples for message in example.messages]
    offered = [list(example.tools) for example in examples if example.tools]
    return found + [json.dumps(tools, ensure_ascii=False) for tools in offered]


def tokenize(example: Example, renderer: Renderer) -> Tokens:
    """The tokens that the loop would see if the policy had replied so."""
    messages = list(example.messages)
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    tokens = renderer.prompt(messages[:first], example.tools or None)
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
