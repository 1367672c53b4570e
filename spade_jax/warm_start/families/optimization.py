"""Optimization: the cheapest offer, the closest size, the best order, filling a space exactly."""

from spade_jax.warm_start.families.fill import Fill
from spade_jax.warm_start.families.program import Family
from spade_jax.warm_start.families.rules import Rule
from spade_jax.warm_start.families.search import Search

SKILL = "Optimization"
SORTS = {"shortest first": "sorted(x)", "longest first": "sorted(x)[::-1]"}


def _cheapest(key: tuple[int, int], x: list[int]) -> str:
    return "abcd"[min(range(4), key=lambda i: x[i] + key[1] * (i == key[0]))]


def _sorted(key: str, x: list[int]) -> str:
    return " ".join(str(n) for n in sorted(x, reverse=key.startswith("longest")))


FAMILIES: list[Family] = [
    Rule(
        name="Cheap",
        skill=SKILL,
        keys=[(i, n) for i in range(4) for n in (3, 4, 5)],
        item="self.rng.sample(range(1, 10), 4)",
        views=["buy a {p} b {q} c {r} d {s}"],
        truth=lambda key: f'"abcd"[min(range(4), key=lambda i: x[i] + {key[1]} * (i == {key[0]}))]',
        phrase=lambda key: f"{'abcd'[key[0]]} costs {key[1]} more",
        read=lambda numbers: numbers[:4],
        answer=_cheapest,
        guesses=lambda x: list("abcd"),
        stored=False,
        goals=[4],
        slack=[1],
    ),
    Rule(
        name="Close",
        skill=SKILL,
        keys=range(3, 8),
        item="self.rng.sample(range(10), 3)",
        views=["size {p} {q} {r}", "fit {p} {q} {r}"],
        truth=lambda key: "str(min(x, key=lambda n: abs(n * 4 - self.key * 4 - 1)))",
        phrase=lambda key: f"near {key}",
        read=lambda numbers: numbers[:3],
        answer=lambda key, x: str(min(x, key=lambda n: abs(n * 4 - key * 4 - 1))),
        guesses=lambda x: [str(n) for n in x],
        goals=[4],
        slack=[1],
    ),
    Rule(
        name="Queue",
        skill=SKILL,
        keys=list(SORTS),
        item="self.rng.sample(range(1, 10), 3)",
        views=["jobs {p} {q} {r}", "queue {p} {q} {r}"],
        truth=lambda key: f'" ".join(str(n) for n in {SORTS[key]})',
        phrase=lambda key: key,
        read=lambda numbers: numbers[:3],
        answer=_sorted,
        guesses=lambda x: [_sorted(key, x) for key in SORTS] + [" ".join(map(str, x))],
        stored=False,
        goals=[3],
        slack=[0, 1],
    ),
    Search(
        name="Peak",
        skill=SKILL,
        steps=range(1, 10),
        counts=range(5, 8),
        phrase="ends in {}",
        digit=True,
    ),
    Fill(name="Fill", skill=SKILL),
]
