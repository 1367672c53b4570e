"""Bringing a reading to a goal with a dial that loses something on the way; the hint tells what."""

import dataclasses
import random
import re

from spade_jax.warm_start.families.program import Game, compose, method


@dataclasses.dataclass(frozen=True)
class Dial:
    """A turn adds what is dialled less the hidden key; each goal reached brings the next."""

    name: str
    skill: str

    def create(self, rng: random.Random, noun: str) -> Game:
        key, goals = rng.randint(1, 5), rng.choice([2, 3])
        source = compose(
            rng,
            self.name,
            noun,
            goals + rng.choice([1, 2]),
            init=[f"self.goal = {goals}", f"self.key = {key}"],
            reset=[
                "self.now = 0",
                "self.rises = [self.rng.randint(2, 8) for _ in range(99)]",
                "self.need = self.rises[self.score]",
            ],
            methods=method("view(self)", 'return f"now {self.now}, need {self.need}"'),
            step=[
                "self.now += int(word) - self.key if word.isdecimal() and len(word) < 3 else 0",
                "if self.now == self.need:",
                "    self.score += 1",
                "    self.now, self.need = 0, self.rises[self.score]",
            ],
            solution=["return [str(rise + self.key) for rise in self.rises[:self.goal]]"],
        )
        return Game(self.name, self.skill, source, f"dial loses {key}", DialPlayer)


class DialPlayer:
    """Dials the difference and what it knows or has seen to be lost."""

    def __init__(self, skill: float, rng: random.Random, hint: str | None):
        self.skill, self.rng = skill, rng
        self.loss = int(hint.split()[2]) if hint else None
        self.last: tuple[int, int, int] | None = None

    def act(self, observation: str) -> str:
        now, goal = (int(number) for number in re.findall(r"-?\d+", observation)[-2:])
        if self.loss is None and self.last is not None:
            old_now, old_goal, dialled = self.last
            self.loss = old_now + dialled - (old_goal if now == 0 else now)
        guess = self.rng.randint(1, 5) if self.loss is None else self.loss
        turn = goal - now + guess
        if self.rng.random() >= self.skill:
            turn = self.rng.randint(1, 12)
        turn = max(0, turn)
        self.last = (now, goal, turn)
        return str(turn)
