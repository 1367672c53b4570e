"""Spatial reasoning: turning, mirroring, moving on a board, finding the way with odd controls."""

from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule
from spade_jax.warm_start.families.treasure import Treasure
from spade_jax.warm_start.families.walk import Walk

SKILL = "Spatial Reasoning"

FAMILIES: list[Family] = [
    Walk(name="Walk", skill=SKILL),
    Treasure(name="Treasure", skill=SKILL),
    Rule(
        name="Turn",
        skill=SKILL,
        keys=[90, 180, 270],
        item="self.rng.randint(0, 3) * 90",
        views=["facing {x}", "heading {x} turns to"],
        truth=lambda key: "str((x + self.key) % 360)",
        phrase=lambda key: f"turn {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str((x + key) % 360),
        guesses=lambda x: ["0", "90", "180", "270"],
        slack=[1],
    ),
    Rule(
        name="Mirror",
        skill=SKILL,
        keys=range(10, 16),
        item="self.rng.randint(1, 9)",
        views=["mirror {x}", "cell {x} across"],
        truth=lambda key: "str(self.key - x)",
        phrase=lambda key: f"sum {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(key - x),
        guesses=lambda x: [str(n) for n in range(1, 12)],
    ),
    Rule(
        name="Slide",
        skill=SKILL,
        keys=[(1, 2), (2, 1), (0, 3), (3, 0), (1, 1), (2, 2), (3, 1), (1, 3), (2, 3), (3, 2)],
        item="self.rng.sample(range(1, 7), 2)",
        views=["slide {p} {q}", "from {p} {q}"],
        truth=lambda key: f'f"{{x[0] + {key[0]}}} {{x[1] + {key[1]}}}"',
        phrase=lambda key: f"move {key[0]} {key[1]}",
        read=lambda numbers: numbers[:2],
        answer=lambda key, x: f"{x[0] + key[0]} {x[1] + key[1]}",
        guesses=lambda x: [f"{x[0] + n} {x[1] + m}" for n in range(4) for m in range(4)],
        stored=False,
    ),
]
