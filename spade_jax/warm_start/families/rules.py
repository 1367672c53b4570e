"""Games of one hidden rule: each turn shows an item, the player answers by the rule.

The rule holds a key that is fixed in the source and not shown. A wrong answer is followed by the
right one, by the key, or by nothing but "no": the key can be found by playing, and the hint tells
it.
"""

import dataclasses
import random
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from spade_jax.warm_start.families.program import Game, compose, method

RIGHT = ("yes", "right", "good")
WRONG = ("no", "wrong", "bad")

Item = Any
Key = Any


@dataclasses.dataclass(frozen=True)
class Rule:
    """A family of rule games.

    Attributes:
      keys: what the hidden key may be.
      item: source of a fresh item, from ``self.rng``.
      views: f-strings without quotes that show an item, whose parts they call by single letters;
        one is chosen.
      truth: source of the right answer, a string, to item ``x``; ``{key}`` is ``self.key`` where
        ``stored``, else a source text of its own for each key.
      phrase: the key in words: the hint, and the correction where corrections tell the key.
      read: item from the numbers of a view.
      answer: the same as ``truth``, in Python, for the scripted player.
      guesses: answers that a random player picks from.
      stored: the key is a number kept in ``self.key``.
      goals: how many right answers win; one is chosen.
      slack: how many wrong ones are allowed; one is chosen.
    """

    name: str
    skill: str
    keys: Sequence[Key]
    item: str
    views: Sequence[str]
    truth: Callable[[Key], str]
    phrase: Callable[[Key], str]
    read: Callable[[list[int]], Item]
    answer: Callable[[Key, Item], str]
    guesses: Callable[[Item], Sequence[str]]
    stored: bool = True
    goals: Sequence[int] = (3, 4)
    slack: Sequence[int] = (1, 2)

    def create(self, rng: random.Random, noun: str) -> Game:
        key = rng.choice(self.keys)
        names = ", ".join(re.findall(r"{(\w)}", self.views[0]))
        goal, view = rng.choice(self.goals), rng.choice(self.views)
        rule = self.phrase("{self.key}" if self.stored else key)
        told = rng.choice([" {truth}", " {truth}", f" {rule}", f" {rule}", f" {rule}", ""])
        right, wrong = rng.choice(RIGHT), rng.choice(WRONG)
        source = compose(
            rng,
            self.name,
            noun,
            goal + rng.choice(self.slack),
            init=[f"self.goal = {goal}"] + ([f"self.key = {key}"] if self.stored else []),
            reset=[f"self.items = [{self.item} for _ in range(99)]"],
            methods=method("view(self)", f"{names} = self.items[self.turn]", f'return f"{view}"')
            + method("truth(self, x)", f"return {self.truth(key)}"),
            step=[
                "truth = self.truth(self.items[self.turn])",
                "self.score += word == truth",
                f'note = "{right}" if word == truth else f"{wrong}{told}"',
            ],
            reply='"{note}, {self.view()}"',
            solution=["return [self.truth(x) for x in self.items[:self.goal]]"],
        )
        hint = self.phrase(key)

        def player(skill: float, rng: random.Random, hint: str | None) -> "RulePlayer":
            return RulePlayer(self, skill, rng, hint)

        return Game(self.name, self.skill, source, hint, player)


class RulePlayer:
    """Answers by a key that agrees with everything seen, or at random."""

    def __init__(self, rule: Rule, skill: float, rng: random.Random, hint: str | None):
        self.rule, self.skill, self.rng = rule, skill, rng
        self.keys = [key for key in rule.keys if hint in (None, rule.phrase(key))]
        self.last: tuple[Item, str] | None = None

    def act(self, observation: str) -> str:
        # The first observation opens with the noun, later ones with the verdict on the last answer.
        verdict, view = typing.cast(re.Match, _OBSERVATION.fullmatch(observation)).groups()
        if self.last is not None:
            self._learn(verdict)
        item = self.rule.read([int(number) for number in re.findall(r"\d+", view)])
        if self.rng.random() < self.skill:
            answer = self.rule.answer(self.rng.choice(self.keys), item)
        else:
            answer = self.rng.choice(self.rule.guesses(item))
        self.last = (item, answer)
        return answer

    def _learn(self, verdict: str) -> None:
        item, given = typing.cast(tuple[Item, str], self.last)
        told = verdict.removeprefix(verdict.split()[0]).strip()
        if verdict in RIGHT:
            self.keys = [key for key in self.keys if self.rule.answer(key, item) == given]
        elif told:
            self.keys = [
                key
                for key in self.keys
                if told in (self.rule.phrase(key), self.rule.answer(key, item))
            ]
        else:
            self.keys = [key for key in self.keys if self.rule.answer(key, item) != given]


_OBSERVATION = re.compile(r"([^,:]*)[,:] (.*)")
