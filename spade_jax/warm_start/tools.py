"""The lesson of the setting ``tools``: desks that are talked to and called.

See :class:`spade_jax.warm_start.lesson.Lesson`.
"""

import random
from collections.abc import Sequence

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.environments import tools as contract
from spade_jax.environments.calls import Call, parse_calls
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay.prompts import Messages
from spade_jax.selfplay.prompts import tools as prompts
from spade_jax.warm_start import desks, tokenizer
from spade_jax.warm_start.families import Game
from spade_jax.warm_start.lesson import ABILITIES, Example, Exemplar, answered, noun, remembered

FORMAT = tokenizer.TOOLS
HINTED = 0.4
"""Share of plays with the hint."""


def create(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Game:
    """A desk of one of the run's skills, in some domain, about some document."""
    skills = [skill for skill in desks.DEEDS if skill in settings.schedule.skills]
    return _of(rng.choice(skills), documents, rng)


def _of(skill: str, documents: Sequence[corpus.Document], rng: random.Random) -> Game:
    domain = rng.choice(list(desks.THINGS))
    return desks.create(rng, skill, domain, noun(rng.choice(documents)))


def designer_example(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Example:
    """A request as the loop would put it, answered by a desk of its skill and domain."""
    skill = rng.choice(settings.schedule.skills)
    domain, variant = prompts.ideas(skill, rng)
    document, memory = rng.choice(documents), settings.memory
    shown = range(rng.randint(0, memory.exemplars)), range(rng.randint(0, memory.avoid))
    good, bad = (memory.low, memory.high), (0.0, 0.05, 0.95, 1.0)
    messages = prompts.designer(
        settings.designer.prompts,
        skill=skill,
        difficulty=settings.designer.difficulty,
        document=document,
        exemplars=[_past(skill, documents, rng.uniform(*good), rng) for _ in shown[0]],
        avoid=[_past(skill, documents, rng.choice(bad), rng) for _ in shown[1]],
        max_turns=settings.agent.max_turns,
        ideas=(domain, variant),
    )
    wanted = desks.create(rng, skill, domain, noun(document))
    return answered("designer", messages, f"```python\n{wanted.source}```")


def _past(
    skill: str, documents: Sequence[corpus.Document], win_rate: float, rng: random.Random
) -> Exemplar:
    return remembered(_of(skill, documents, rng), win_rate, rng)


def hint_request(settings: config.Config, game: Game) -> Messages:
    """As the loop would ask for the hint."""
    return prompts.hint(
        settings.designer.prompts, skill=game.skill, source=game.source, words=settings.hints.words
    )


async def play(
    settings: config.Config, game: Game, host: Host, handle: int, rng: random.Random
) -> Example:
    """One dialogue."""
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
    return Example("play", tuple(messages), tools)


async def _answers(host: Host, handle: int, calls: Sequence[Call]) -> list[dict[str, str]]:
    """Tool messages and then what the user says, as the agent gets them."""
    made = [contract.answer(await host.call(handle, c.name, c.arguments)) for c in calls]
    told = [text for answer in made for text in answer.instructions]
    return [
        *({"role": "tool", "content": answer.output} for answer in made),
        *({"role": "user", "content": text} for text in told),
    ]
