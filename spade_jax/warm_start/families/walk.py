"""Walking to a goal on a grid with controls that may be reversed; the hint tells how."""

import dataclasses
import random
import re

from spade_jax.warm_start.families.program import Game, compose, method

MOVES = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
QUIRKS = {"ends": (1, -1), "sides": (-1, 1), "all": (-1, -1), "nothing": (1, 1)}


@dataclasses.dataclass(frozen=True)
class Walk:
    """The goal is a fixed number of steps away; the hidden key is which directions are swapped."""

    name: str
    skill: str

    def create(self, rng: random.Random, noun: str) -> Game:
        quirk = rng.choice(list(QUIRKS))
        across, along = QUIRKS[quirk]
        distance = rng.choice([3, 4, 4])
        signs = "self.rng.choice([-1, 1])"
        source = compose(
            rng,
            self.name,
            noun,
            distance + rng.choice([0, 1, 2]) + (distance == 4),
            init=[f"self.side = {across}", f"self.rise = {along}"],
            reset=[
                "self.x, self.y = 5, 5",
                f"far = self.rng.randint(1, {distance - 1})",
                f"self.goal = (5 + far * {signs}, 5 + ({distance} - far) * {signs})",
            ],
            methods=method(
                "view(self)",
                'return f"at {self.x} {self.y}, go to {self.goal[0]} {self.goal[1]}"',
            ),
            step=[
                'self.x += {"east": self.side, "west": -self.side}.get(word, 0)',
                'self.y += {"north": self.rise, "south": -self.rise}.get(word, 0)',
            ],
            won="(self.x, self.y) == self.goal",
            solution=[
                "far, up = self.goal[0] - self.x, self.goal[1] - self.y",
                'across = ["east" if far * self.side > 0 else "west"] * abs(far)',
                'return across + ["north" if up * self.rise > 0 else "south"] * abs(up)',
            ],
        )
        return Game(self.name, self.skill, source, f"swap {quirk}", WalkPlayer)


class WalkPlayer:
    """Goes straight for the goal and turns its idea of the controls when a step goes wrong."""

    def __init__(self, skill: float, rng: random.Random, hint: str | None):
        self.skill, self.rng = skill, rng
        self.across, self.along = QUIRKS[hint.split()[1]] if hint else (1, 1)
        self.last: tuple[int, int, str] | None = None

    def act(self, observation: str) -> str:
        x, y, goal_x, goal_y = (int(number) for number in re.findall(r"-?\d+", observation)[-4:])
        if self.last is not None:
            old_x, old_y, word = self.last
            move_x, move_y = MOVES[word]
            self.across = (x - old_x) * move_x or self.across
            self.along = (y - old_y) * move_y or self.along
        far, up = goal_x - x, goal_y - y
        if self.rng.random() >= self.skill:
            word = self.rng.choice(list(MOVES))
        elif far:
            word = "east" if far * self.across > 0 else "west"
        else:
            word = "north" if up * self.along > 0 else "south"
        self.last = (x, y, word)
        return word
