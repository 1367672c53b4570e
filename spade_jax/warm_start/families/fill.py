"""Filling a space exactly with boxes that take more room than they say; the hint tells how much."""

import dataclasses
import random
import re

from spade_jax.warm_start.families.program import Game, compose, method


@dataclasses.dataclass(frozen=True)
class Fill:
    """Each box of size 1 to 9 takes the hidden key more; two spaces in a row must come out even."""

    name: str
    skill: str

    def create(self, rng: random.Random, noun: str) -> Game:
        key = rng.randint(1, 4)
        source = compose(
            rng,
            self.name,
            noun,
            rng.choice([4, 5]),
            init=["self.goal = 2", f"self.key = {key}"],
            reset=[
                f"self.spaces = [self.rng.randint({key + 1}, {key + 8}) for _ in range(99)]",
                "self.left = self.spaces[self.score]",
            ],
            methods=method("view(self)", 'return f"room {self.left}, box 1 to 9"'),
            step=[
                "size = int(word) if word.isdecimal() and len(word) < 2 else 0",
                "self.left -= size + self.key if size else 0",
                "over = self.left < 0",
                "if self.left == 0:",
                "    self.score += 1",
                "    self.left = self.spaces[self.score]",
            ],
            lost="over",
            solution=["return [str(room - self.key) for room in self.spaces[:self.goal]]"],
        )
        return Game(self.name, self.skill, source, f"boxes take {key} more", FillPlayer)


class FillPlayer:
    """Fills the room in one go by the overhead it knows or has seen."""

    def __init__(self, skill: float, rng: random.Random, hint: str | None):
        self.skill, self.rng = skill, rng
        self.overhead = int(hint.split()[2]) if hint else None
        self.last: tuple[int, int] | None = None

    def act(self, observation: str) -> str:
        room = int(re.findall(r"room (\d+)", observation)[0])
        if self.overhead is None and self.last and self.last[0] - room > self.last[1]:
            self.overhead = self.last[0] - room - self.last[1]
        # A box of 1 is the safest way to see how much is added.
        size = room - self.overhead if self.overhead is not None else 1
        if self.rng.random() >= self.skill or not 1 <= size <= 9:
            size = self.rng.randint(1, 9)
        self.last = (room, size)
        return str(size)
