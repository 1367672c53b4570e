"""The teaching set of the setting ``tools``: how designer, hint writer and agent should reply.

Requests are made by the functions that the loop itself uses, and dialogues are held with desks in
the sandbox, so what is taught is what is asked.
"""

import asyncio
import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.environments import tools as contract
from spade_jax.environments.calls import Call, parse_calls
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay.prompts import tools as prompts
from spade_jax.tool_lesson import desks
from spade_jax.warm_start import examples as games
from spade_jax.warm_start.examples import Example, Exemplar, Tokens
from spade_jax.warm_start.families import Game

ABILITIES = (1.0, 1.0, 1.0, 0.9, 0.7)
"""Scripted players are drawn from these, so that the model wins some of its dialogues, not all."""
PLAYS_PER_DESK = 4
HINTED = 0.4
"""Share of plays with the hint."""
ROOMS = 16
"""Desks open in the sandbox at once."""


@dataclasses.dataclass(frozen=True)
class Dialogue(Example):
    """A play, and the tools that are offered in it."""

    tools: Sequence[dict[str, Any]]


async def build(
    settings: config.Config, documents: Sequence[corpus.Document], host: Host
) -> list[Example]:
    """The whole teaching set, the same for the same settings and documents."""
    warm = settings.warm_start
    rng = random.Random(settings.seed)
    examples = [designer_example(settings, documents, rng) for _ in range(warm.programs)]
    examples += [hint_example(settings, documents, rng) for _ in range(warm.hints)]
    drawn = [desk(documents, rng) for _ in range(-(-warm.plays // PLAYS_PER_DESK))]
    seeds = [rng.getrandbits(32) for _ in drawn]
    rooms = asyncio.Semaphore(ROOMS)

    async def plays(game: Game, seed: int) -> list[Dialogue]:
        async with rooms:
            return await dialogues(settings, game, host, seed)

    played = await asyncio.gather(*map(plays, drawn, seeds))
    return examples + [example for some in played for example in some][: warm.plays]


def desk(
    documents: Sequence[corpus.Document],
    rng: random.Random,
    skill: str = "",
    domain: str = "",
) -> Game:
    """A desk about some document, of any skill and in any domain unless they are given."""
    skill = skill or rng.choice(list(desks.DEEDS))
    domain = domain or rng.choice(list(desks.THINGS))
    return desks.create(rng, skill, domain, games.noun(rng.choice(documents)))


def designer_example(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Example:
    """A request as the loop would put it, answered by a desk of its skill and domain."""
    skill = rng.choice(settings.schedule.skills)
    domain, variant = prompts.ideas(skill, rng)
    document, memory = rng.choice(documents), settings.memory

    def remembered(win_rate: float) -> Exemplar:
        past = desk(documents, rng, skill)
        return Exemplar(past.family, skill, past.source, win_rate, rng.uniform(0.0, 0.5))

    shown = range(rng.randint(0, memory.exemplars)), range(rng.randint(0, memory.avoid))
    messages = prompts.designer(
        settings.designer.prompts,
        skill=skill,
        difficulty=settings.designer.difficulty,
        document=document,
        exemplars=[remembered(rng.uniform(memory.low, memory.high)) for _ in shown[0]],
        avoid=[remembered(rng.choice([0.0, 0.05, 0.95, 1.0])) for _ in shown[1]],
        max_turns=settings.agent.max_turns,
        ideas=(domain, variant),
    )
    wanted = desks.create(rng, skill, domain, games.noun(document))
    reply = {"role": "assistant", "content": f"```python\n{wanted.source}```"}
    return Example("designer", (*messages, reply))


def hint_example(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Example:
    """A source and the hint that its author would give."""
    past = desk(documents, rng)
    messages = prompts.hint(
        settings.designer.prompts, skill=past.skill, source=past.source, words=settings.hints.words
    )
    return Example("hint", (*messages, {"role": "assistant", "content": past.hint}))


async def dialogues(settings: config.Config, game: Game, host: Host, seed: int) -> list[Dialogue]:
    """Plays of scripted players of mixed ability in both arms."""
    rng = random.Random(seed)
    handle = await host.open(game.source, settings.agent.max_turns)
    try:
        return [await _play(settings, game, host, handle, rng) for _ in range(PLAYS_PER_DESK)]
    finally:
        await host.close(handle)


async def _play(
    settings: config.Config, game: Game, host: Host, handle: int, rng: random.Random
) -> Dialogue:
    hint = game.hint if rng.random() < HINTED else None
    player = game.player(rng.choice(ABILITIES), random.Random(rng.getrandbits(32)), hint)
    observation = await host.reset(handle, rng.getrandbits(31))
    messages = prompts.agent(settings.designer.prompts, observation=observation, hint=hint)
    tools = await host.tools(handle)
    for _ in range(settings.agent.max_turns):
        reply = player.act(observation)
        messages.append({"role": "assistant", "content": reply})
        if calls := parse_calls(reply):
            answers = await _answers(host, handle, [c for c in calls if isinstance(c, Call)])
        else:
            result = await host.step(handle, reply)
            if result.terminated or messages.count(messages[-1]) > 1:  # lost, and said so twice
                break
            answers = [{"role": "user", "content": result.observation}]
        messages += answers
        observation = "\n".join(message["content"] for message in answers)
    while messages[-1]["role"] != "assistant":  # answers to the last turn
        messages.pop()
    return Dialogue("play", tuple(messages), tools)


async def _answers(host: Host, handle: int, calls: Sequence[Call]) -> list[dict[str, str]]:
    """Tool messages and then what the user says, as the agent gets them."""
    made = [contract.answer(await host.call(handle, c.name, c.arguments)) for c in calls]
    told = [text for answer in made for text in answer.instructions]
    return [
        *({"role": "tool", "content": answer.output} for answer in made),
        *({"role": "user", "content": text} for text in told),
    ]


def texts(examples: Sequence[Example]) -> list[str]:
    """All that the tokenizer is made for: messages, and tools as the chat template shows them."""
    found = [message["content"] for example in examples for message in example.messages]
    offered = [list(item.tools) for item in examples if isinstance(item, Dialogue)]
    return found + [json.dumps(tools, ensure_ascii=False) for tools in offered]


class _Offering:
    """A renderer whose conversations begin with some tools."""

    def __init__(self, renderer: Renderer, tools: Sequence[dict[str, Any]]):
        self._renderer, self._tools = renderer, tools
        self.reply, self.extend = renderer.reply, renderer.extend

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self._renderer.prompt(messages, self._tools)


def tokenize(example: Example, renderer: Renderer) -> Tokens:
    """The tokens that the loop would see if the policy had replied so."""
    if isinstance(example, Dialogue):
        return games.tokenize(example, _Offering(renderer, example.tools))  # type: ignore[arg-type]
    return games.tokenize(example, renderer)
