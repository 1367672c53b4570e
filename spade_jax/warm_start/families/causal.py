"""Causal inference: which lever acts on which lamp, which cause outweighs, how much a dial does."""

from spade_jax.warm_start.families.dial import Dial
from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule

SKILL = "Causal Inference"
LEVERS = [(2, 5, 3), (4, 1, 5), (3, 4, 1), (5, 2, 4), (1, 3, 5), (5, 3, 2), (2, 1, 4), (4, 5, 2)]
LAWS = {"sum": "x[0] + x[1]", "gap": "abs(x[0] - x[1])", "product": "x[0] * x[1]"}


def _law(key: str, one: int, two: int) -> str:
    return str({"sum": one + two, "gap": abs(one - two), "product": one * two}[key])


FAMILIES: list[Family] = [
    Rule(
        name="Lever",
        skill=SKILL,
        keys=LEVERS,
        item="self.rng.randint(0, 2)",
        views=["lamp {x}, levers 1 to 5", "light lamp {x}"],
        truth=lambda key: f"str({list(key)}[x])",
        phrase=lambda key: "levers {} {} {}".format(*key),
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(key[x]),
        guesses=lambda x: list("12345"),
        stored=False,
        goals=[4],
        slack=[1, 2],
    ),
    Rule(
        name="Law",
        skill=SKILL,
        keys=list(LAWS),
        item="self.rng.sample(range(2, 9), 2)",
        views=["mix {p} and {q}", "force {p} on {q}"],
        truth=lambda key: f"str({LAWS[key]})",
        phrase=lambda key: f"law {key}",
        read=lambda numbers: numbers[:2],
        answer=lambda key, x: _law(key, *x),
        guesses=lambda x: [_law(key, *x) for key in LAWS] + [str(n) for n in range(2, 10)],
        stored=False,
        goals=[4],
        slack=[1, 2],
    ),
    Rule(
        name="Lag",
        skill=SKILL,
        keys=range(1, 5),
        item="self.rng.sample(range(10), 4)",
        views=["log {p} {q} {r} {s} alarm", "then {p} {q} {r} {s} bang"],
        truth=lambda key: "str(x[-self.key])",
        phrase=lambda key: f"lag {key}",
        read=lambda numbers: numbers[:4],
        answer=lambda key, x: str(x[-key]),
        guesses=lambda x: [str(n) for n in x],
    ),
    Rule(
        name="Effect",
        skill=SKILL,
        keys=range(1, 7),
        item="self.rng.randint(1, 9)",
        views=["heat {x} makes", "dose {x} gives"],
        truth=lambda key: "str(10 + x - self.key)",
        phrase=lambda key: f"loses {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(10 + x - key),
        guesses=lambda x: [str(10 + x - n) for n in range(7)],
    ),
    Dial(name="Dial", skill=SKILL),
]
