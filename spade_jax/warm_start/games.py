"""The lesson of the setting ``games``: small games of hand-written families.

See :class:`spade_jax.warm_start.lesson.Lesson`.
"""

import random
from collections.abc import Sequence

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import prompts
from spade_jax.warm_start import tokenizer
from spade_jax.warm_start.families import FAMILIES, Game, Theme
from spade_jax.warm_start.lesson import ABILITIES, Example, answered, noun, remembered

FORMAT = tokenizer.GAMES
MOST_SHOWN = 2
"""Exemplars, and environments to avoid, in one request: a skill has five families."""
HINTED = 0.4
"""Share of plays with the hint."""


def create(
    settings: config.Config, documents: Sequence[corpus.Document], rng: random.Random
) -> Game:
    """A game of some family of the run's skills, about some document."""
    families = [family for family in FAMILIES if family.skill in settings.schedule.skills]
    return _of(rng.choice(families), documents, rng)


def _of(family: Theme, documents: Sequence[corpus.Document], rng: random.Random) -> Game:
    return family.create(rng, noun(rng.choice(documents)))


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
        remembered(_of(families.pop(), documents, rng), rng.uniform(0.15, 0.85), rng)
        for _ in range(shown)
    ]
    avoid = [
        remembered(_of(families.pop(), documents, rng), rng.choice([0.0, 0.05, 0.95, 1.0]), rng)
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
    return answered("designer", messages, f"```python\n{target.source}```")


def hint_request(settings: config.Config, game: Game) -> prompts.Messages:
    """As the loop would ask for the hint."""
    return prompts.hint(
        settings.designer.prompts,
        skill=game.skill,
        source=game.source,
        words=settings.hints.words,
    )


async def play(
    settings: config.Config, game: Game, host: Host, handle: int, rng: random.Random
) -> Example:
    """One episode."""
    hint = game.hint if rng.random() < HINTED else None
    player = game.player(rng.choice(ABILITIES), random.Random(rng.getrandbits(32)), hint)
    observation = await host.reset(handle, rng.getrandbits(31))
    messages = prompts.agent(settings.designer.prompts, observation=observation, hint=hint)
    while True:
        action = "\\boxed{" + player.act(observation) + "}"
        messages.append({"role": "assistant", "content": action})
        result = await host.step(handle, action)
        if result.terminated or result.truncated:
            return Example("play", tuple(messages))
        observation = result.observation
        messages.append({"role": "user", "content": observation})
