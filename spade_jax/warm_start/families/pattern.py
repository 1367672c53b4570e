"""Pattern recognition: the next of a sequence, the odd one, a place, a rearrangement."""

from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule

SKILL = "Pattern Recognition"
PLACES = ["first", "second", "third", "last"]
CYCLES = ["3142", "2413", "4213", "1342", "3214", "4132", "2431", "1423"]
SHUFFLES = {
    "reverse": (2, 1, 0),
    "rotate": (1, 2, 0),
    "roll": (2, 0, 1),
    "swap": (1, 0, 2),
}


def _shuffled(key: str, x: list[int]) -> str:
    return " ".join(str(x[i]) for i in SHUFFLES[key])


def _next(cycle: str, x: int) -> str:
    return cycle[(cycle.index(str(x)) + 1) % 4]


FAMILIES: list[Family] = [
    Rule(
        name="Next",
        skill=SKILL,
        keys=range(2, 8),
        item="self.rng.randint(1, 9)",
        views=["next after {x}", "{x} goes to"],
        truth=lambda key: "str(x + self.key)",
        phrase=lambda key: f"step {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(x + key),
        guesses=lambda x: [str(x + n) for n in range(1, 10)],
    ),
    Rule(
        name="Place",
        skill=SKILL,
        keys=range(4),
        item="self.rng.sample(range(10), 4)",
        views=["row {p} {q} {r} {s}", "see {p} {q} {r} {s}"],
        truth=lambda key: f"str(x[{key}])",
        phrase=lambda key: f"the {PLACES[key]}",
        read=lambda numbers: numbers[:4],
        answer=lambda key, x: str(x[key]),
        guesses=lambda x: [str(n) for n in x],
        stored=False,
    ),
    Rule(
        name="Shuffle",
        skill=SKILL,
        keys=list(SHUFFLES),
        item="self.rng.sample(range(10), 3)",
        views=["shuffle {p} {q} {r}", "recode {p} {q} {r}"],
        truth=lambda key: 'f"{{x[{}]}} {{x[{}]}} {{x[{}]}}"'.format(*SHUFFLES[key]),
        phrase=lambda key: key,
        read=lambda numbers: numbers[:3],
        answer=_shuffled,
        guesses=lambda x: [_shuffled(key, x) for key in SHUFFLES] + [" ".join(map(str, x))],
        stored=False,
    ),
    Rule(
        name="Cycle",
        skill=SKILL,
        keys=[int(cycle) for cycle in CYCLES],
        item="self.rng.randint(1, 4)",
        views=["cycle from {x}", "ring at {x}"],
        truth=lambda key: "(2 * str(self.key))[str(self.key).index(str(x)) + 1]",
        phrase=lambda key: f"ring {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: _next(str(key), x),
        guesses=lambda x: list("1234"),
        goals=[4],
        slack=[1],
    ),
    Rule(
        name="Pair",
        skill=SKILL,
        keys=range(1, 6),
        item="self.rng.randint(1, 9)",
        views=["pair {x}", "two after {x}"],
        truth=lambda key: 'f"{x + self.key} {x + 2 * self.key}"',
        phrase=lambda key: f"twice {key}",
        read=lambda numbers: numbers[0],
        answer=lambda key, x: f"{x + key} {x + 2 * key}",
        guesses=lambda x: [f"{x + n} {x + 2 * n}" for n in range(1, 7)],
    ),
]
