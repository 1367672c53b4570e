"""How alike programs are, by the token trigrams they share."""

import collections
import functools
import math
import re
from collections.abc import Sequence

TOKEN = re.compile(r"\w+|[^\w\s]")
COMMENT = re.compile(r"#.*")
Trigrams = frozenset[tuple[str, ...]]


@functools.lru_cache(maxsize=1024)
def trigrams(source: str) -> Trigrams:
    """All runs of three tokens; comments and layout do not count."""
    tokens = TOKEN.findall(COMMENT.sub("", source))
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def similarity(first: str, second: str) -> float:
    """Jaccard index of the two sets of trigrams, in [0, 1]; 1 for equal programs."""
    if first == second:
        return 1.0
    return _jaccard(trigrams(first), trigrams(second))


def duplicates(sources: Sequence[str], threshold: float) -> list[int | None]:
    """For each source the first earlier one to which it is at least ``threshold`` similar.

    Two sets that alike share one of their |A| - ceil(threshold |A|) + 1 rarest members (the prefix
    filter of Bayardo, Ma and Srikant, WWW 2007), so only pairs that do are compared.
    """
    sets = [trigrams(source) for source in sources]
    frequency = collections.Counter(trigram for members in sets for trigram in members)
    holders: dict[tuple[str, ...], list[int]] = collections.defaultdict(list)
    found: list[int | None] = []
    for number, members in enumerate(sets):
        rarest = sorted(members, key=lambda trigram: (frequency[trigram], trigram))
        prefix = rarest[: len(rarest) - math.ceil(threshold * len(rarest)) + 1]
        candidates = sorted({other for trigram in prefix for other in holders[trigram]})
        alike = (other for other in candidates if _jaccard(members, sets[other]) >= threshold)
        found.append(next(alike, None))
        for trigram in prefix:
            holders[trigram].append(number)
    return found


def _jaccard(a: Trigrams, b: Trigrams) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0
