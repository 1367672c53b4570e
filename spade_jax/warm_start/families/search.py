"""Games of a hidden number between two bounds that close in; the hint tells which to leave out."""

import dataclasses
import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.families.program import Game, compose, method


@dataclasses.dataclass(frozen=True)
class Search:
    """Find two numbers, one after the other, that are multiples of the key or end in it.

    Attributes:
      steps: what the hidden key may be.
      counts: how many numbers can be the target.
      phrase: the hint, with a place for the key.
      digit: the key is the target's last digit instead of its divisor.
    """

    name: str
    skill: str
    steps: Sequence[int]
    counts: Sequence[int]
    phrase: str
    digit: bool = False

    def create(self, rng: random.Random, noun: str) -> Game:
        key, count = rng.choice(self.steps), rng.choice(self.counts)
        top = 10 * count if self.digit else key * count
        target = f"self.rng.randint(0, {count - 1}) * 10 + self.key"
        if not self.digit:
            target = f"self.rng.randint(1, {count}) * self.key"
        source = compose(
            rng,
            self.name,
            noun,
            rng.choice([6, 7, 8]),
            init=["self.goal = 2", f"self.key = {key}"],
            reset=[
                f"self.targets = [{target} for _ in range(99)]",
                f"self.low, self.high = 1, {top}",
            ],
            methods=method("view(self)", 'return f"{self.low} to {self.high}"'),
            step=[
                "guess = int(word) if word.isdecimal() and len(word) < 4 else 0",
                "target = self.targets[self.score]",
                "if guess == target:",
                "    self.score += 1",
                f"    self.low, self.high = 1, {top}",
                "elif guess < target:",
                "    self.low = max(self.low, guess + 1)",
                "else:",
                "    self.high = min(self.high, guess - 1)",
            ],
            reply='"{self.score} found, {self.view()}"',
            solution=["return [str(target) for target in self.targets[:self.goal]]"],
        )
        hint = self.phrase.format(key)

        def player(skill: float, rng: random.Random, hint: str | None) -> SearchPlayer:
            told = int(hint.split()[-1]) if hint else None
            return SearchPlayer(self, skill, rng, told)

        return Game(self.name, self.skill, source, hint, player)


class SearchPlayer:
    """Halves what is left, among the numbers that the hint allows."""

    def __init__(self, family: Search, skill: float, rng: random.Random, key: int | None):
        self.family, self.skill, self.rng, self.key = family, skill, rng, key

    def act(self, observation: str) -> str:
        low, high = (int(number) for number in re.findall(r"\d+", observation)[-2:])
        if self.rng.random() >= self.skill:
            return str(self.rng.randint(low, high))
        left = [number for number in range(low, high + 1) if self._allowed(number)]
        # Somewhere near the middle: the exact middle never falls on some targets.
        quarter = len(left) // 4
        return str(self.rng.choice(left[quarter : len(left) - quarter] or [low]))

    def _allowed(self, number: int) -> bool:
        if self.key is None:
            return True
        return number % 10 == self.key if self.family.digit else number % self.key == 0
