"""Digging for a treasure on a grid whose bounds close in; the hint tells its row or column."""

import dataclasses
import random
import re

from spade_jax.warm_start.families.program import Game, compose, method


@dataclasses.dataclass(frozen=True)
class Treasure:
    """One coordinate of the treasure is the hidden key, the other is drawn with the instance."""

    name: str
    skill: str

    def create(self, rng: random.Random, noun: str) -> Game:
        size = rng.randint(16, 20)
        key, axis = rng.randint(1, size), rng.randrange(2)
        drawn = f"self.rng.randint(1, {size})"
        spot = [drawn, drawn]
        spot[axis] = "self.key"
        source = compose(
            rng,
            self.name,
            noun,
            rng.choice([3, 4, 4]),
            init=[f"self.key = {key}"],
            reset=[
                "self.low = [1, 1]",
                f"self.high = [{size}, {size}]",
                f"self.spot = [{', '.join(spot)}]",
            ],
            methods=method(
                "view(self)",
                'across = f"x {self.low[0]} to {self.high[0]}"',
                'return across + f", y {self.low[1]} to {self.high[1]}"',
            ),
            step=[
                "dig = [int(n) for n in word.split() if n.isdecimal() and len(n) < 3]",
                "for i in range(len(dig) if len(dig) == 2 else 0):",
                "    if dig[i] <= self.spot[i]:",
                "        self.low[i] = max(self.low[i], dig[i])",
                "    if dig[i] >= self.spot[i]:",
                "        self.high[i] = min(self.high[i], dig[i])",
            ],
            won="dig == self.spot",
            solution=['return [f"{self.spot[0]} {self.spot[1]}"]'],
        )
        return Game(self.name, self.skill, source, f"{'xy'[axis]} is {key}", TreasurePlayer)


class TreasurePlayer:
    """Digs in the middle of what is left, on the line that the hint tells."""

    def __init__(self, skill: float, rng: random.Random, hint: str | None):
        self.skill, self.rng, self.hint = skill, rng, hint

    def act(self, observation: str) -> str:
        low_x, high_x, low_y, high_y = (int(n) for n in re.findall(r"\d+", observation)[-4:])
        spot = [self._between(low_x, high_x), self._between(low_y, high_y)]
        if self.hint:
            axis, _, value = self.hint.split()
            spot["xy".index(axis)] = int(value)
        return f"{spot[0]} {spot[1]}"

    def _between(self, low: int, high: int) -> int:
        # Bounds that were dug at are kept unless they coincide, so an inner cell is always better.
        if high - low > 1:
            low, high = low + (low > 1), high - 1
        return (low + high) // 2 if self.rng.random() < self.skill else self.rng.randint(low, high)
