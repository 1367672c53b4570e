"""How alike two programs are, by the token trigrams they share."""

import functools
import re

TOKEN = re.compile(r"\w+|[^\w\s]")
COMMENT = re.compile(r"#.*")


@functools.lru_cache(maxsize=1024)
def trigrams(source: str) -> frozenset[tuple[str, ...]]:
    """All runs of three tokens; comments and layout do not count."""
    tokens = TOKEN.findall(COMMENT.sub("", source))
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def similarity(first: str, second: str) -> float:
    """Jaccard index of the two sets of trigrams, in [0, 1]; 1 for equal programs."""
    if first == second:
        return 1.0
    a, b = trigrams(first), trigrams(second)
    return len(a & b) / len(a | b) if a or b else 1.0
