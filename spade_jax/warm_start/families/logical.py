"""Logical deduction: whom to believe, what outranks what, which code fits."""

from itertools import permutations

from spade_jax.warm_start.families.code import Code
from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule

SKILL = "Logical Deduction"
ORDERS = ["3142", "2413", "4231", "1324", "3421", "2143", "4312", "1432"]
WITNESSES = ["Ann", "Bob", "Cal"]
RANKS = {"smallest": 0, "middle": 1, "largest": 2}

FAMILIES: list[Family] = [
    Rule(
        name="Witness",
        skill=SKILL,
        keys=range(3),
        item="self.rng.sample(range(10), 3)",
        views=["Ann {p} Bob {q} Cal {r}", "Ann says {p}, Bob {q}, Cal {r}"],
        truth=lambda key: f"str(x[{key}])",
        phrase=lambda key: f"trust {WITNESSES[key]}",
        read=lambda numbers: numbers[:3],
        answer=lambda key, x: str(x[key]),
        guesses=lambda x: [str(n) for n in x],
        stored=False,
        goals=[4],
        slack=[1],
    ),
    Rule(
        name="Rank",
        skill=SKILL,
        keys=ORDERS,
        item="self.rng.sample(range(1, 5), 3)",
        views=["rank {p} {q} {r}", "order {p} {q} {r}"],
        truth=lambda key: f'" ".join(n for n in "{key}" if int(n) in x)',
        phrase=lambda key: f"order {key}",
        read=lambda numbers: numbers[:3],
        answer=lambda key, x: " ".join(n for n in key if int(n) in x),
        guesses=lambda x: [" ".join(str(x[i]) for i in order) for order in permutations(range(3))],
        stored=False,
        goals=[3],
        slack=[1, 2],
    ),
    Rule(
        name="Size",
        skill=SKILL,
        keys=list(RANKS),
        item="self.rng.sample(range(10), 3)",
        views=["pick {p} {q} {r}", "one of {p} {q} {r}"],
        truth=lambda key: f"str(sorted(x)[{RANKS[key]}])",
        phrase=lambda key: f"the {key}",
        read=lambda numbers: numbers[:3],
        answer=lambda key, x: str(sorted(x)[RANKS[key]]),
        guesses=lambda x: [str(n) for n in x],
        stored=False,
        goals=[4],
        slack=[1],
    ),
    Rule(
        name="Door",
        skill=SKILL,
        keys=[(3, 1, 2), (2, 3, 1), (1, 3, 2), (2, 1, 3), (3, 2, 1), (4, 1, 3), (1, 4, 2)],
        item="self.rng.randint(0, 2)",
        views=["sign {x}, doors 1 to 4", "key {x} of 0 to 2"],
        truth=lambda key: f"str({list(key)}[x])",
        phrase=lambda key: "doors {} {} {}".format(*key),
        read=lambda numbers: numbers[0],
        answer=lambda key, x: str(key[x]),
        guesses=lambda x: list("1234"),
        stored=False,
        goals=[4],
        slack=[1],
    ),
    Code(name="Code", skill=SKILL),
]
