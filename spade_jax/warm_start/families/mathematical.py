"""Mathematical reasoning: hidden operands, and a number to be found."""

from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule
from spade_jax.warm_start.families.search import Search

SKILL = "Mathematical Reasoning"

FAMILIES: list[Family] = [
    Rule(
        name="Add",
        skill=SKILL,
        keys=range(2, 10),
        item="self.rng.randint(1, 9)",
        views=["{x} plus?", "add to {x}"],
        truth=lambda key: "str(x + self.key)",
        phrase=lambda key: f"add {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(x + key),
        guesses=lambda x: [str(x + n) for n in range(1, 10)],
    ),
    Rule(
        name="Less",
        skill=SKILL,
        keys=range(1, 9),
        item="self.rng.randint(10, 19)",
        views=["{x} minus?", "take from {x}"],
        truth=lambda key: "str(x - self.key)",
        phrase=lambda key: f"take {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(x - key),
        guesses=lambda x: [str(x - n) for n in range(1, 10)],
    ),
    Rule(
        name="Times",
        skill=SKILL,
        keys=range(2, 7),
        item="self.rng.randint(2, 9)",
        views=["{x} times?", "scale {x}"],
        truth=lambda key: "str(x * self.key)",
        phrase=lambda key: f"times {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(x * key),
        guesses=lambda x: [str(x * n) for n in range(2, 8)],
    ),
    Rule(
        name="Digit",
        skill=SKILL,
        keys=range(1, 10),
        item="self.rng.randint(1, 9)",
        views=["last digit after {x}", "wrap {x}"],
        truth=lambda key: "str((x + self.key) % 10)",
        phrase=lambda key: f"wrap {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str((x + key) % 10),
        guesses=lambda x: [str(n) for n in range(10)],
    ),
    Search(
        name="Multiple",
        skill=SKILL,
        steps=range(2, 6),
        counts=range(8, 11),
        phrase="multiple of {}",
    ),
]
