"""Has the designer collapsed? Near-duplicates in the order in which programs were written.

Programs are compared by their skeletons, so that one with other names, numbers and texts is the
same one: a designer that only repaints a game has collapsed as well.
"""

import ast
import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

SHINGLE = 6  # nodes of a syntax tree
ALIKE = 0.6
"""Jaccard index of two skeletons from which programs are near-duplicates."""
WINDOW = 24
"""Programs that are looked at together: an environment set of the published runs."""
LONGEST_RUN = 12
TOP_SHARE = 0.5
SILENT = (ast.expr_context, ast.arguments, ast.Constant, ast.Module)
"""Nodes that say nothing of what a program does."""
Skeleton = frozenset[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Collapse:
    """What repeats in a sequence of programs.

    Attributes:
      clusters: for each program the number of its cluster; 0 is the first program's.
      longest_run: most programs in a row of one cluster; begins at index ``run_start``.
      top_share: largest share that one cluster has of ``WINDOW`` programs in a row.
      effective: effective number of clusters, exp of the entropy of their shares; 0 of none.
    """

    clusters: list[int]
    longest_run: int
    run_start: int
    top_share: float
    effective: float

    @property
    def alarm(self) -> bool:
        """A long run, or one cluster that fills most of a whole window."""
        crowded = len(self.clusters) >= WINDOW and self.top_share > TOP_SHARE
        return self.longest_run > LONGEST_RUN or crowded


def skeleton(source: str) -> Skeleton:
    """All runs of ``SHINGLE`` nodes of a program's syntax tree, without names, numbers and texts.

    Empty for what is no Python.
    """
    try:
        kinds = list(_kinds(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(tuple(kinds[i : i + SHINGLE]) for i in range(len(kinds) - SHINGLE + 1))


def _kinds(node: ast.AST) -> Iterator[str]:
    """Kinds of the nodes from the top down and left to right; a text is a text, however made."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return
    if not isinstance(node, SILENT):
        yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        yield from _kinds(child)


def find(sources: Sequence[str], alike: float = ALIKE) -> Collapse:
    """What repeats in programs that were written in this order.

    A program joins the cluster of the most similar of the ``WINDOW`` before it, if their skeletons
    have a Jaccard index of ``alike`` at least.
    """
    skeletons = [skeleton(source) for source in sources]
    clusters: list[int] = []
    for index, own in enumerate(skeletons):
        start = max(0, index - WINDOW)
        before = [(_jaccard(own, skeletons[other]), other) for other in range(start, index)]
        closest, other = max(before, default=(-1.0, -1))
        new = max(clusters, default=-1) + 1
        clusters.append(clusters[other] if closest >= alike else new)
    longest, start = _longest_run(clusters)
    return Collapse(clusters, longest, start, _top_share(clusters), _effective(clusters))


def _jaccard(a: Skeleton, b: Skeleton) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def _longest_run(clusters: Sequence[int]) -> tuple[int, int]:
    """Length and beginning of the first longest run."""
    best, start = (0, 0), 0
    for index, cluster in enumerate(clusters):
        if cluster != clusters[start]:
            start = index
        best = max(best, (index - start + 1, start), key=lambda run: run[0])
    return best


def _top_share(clusters: Sequence[int]) -> float:
    windows = range(max(1, len(clusters) - WINDOW + 1)) if clusters else ()
    shares = []
    for start in windows:
        window = clusters[start : start + WINDOW]
        shares.append(max(collections.Counter(window).values()) / len(window))
    return max(shares, default=0.0)


def _effective(clusters: Sequence[int]) -> float:
    if not clusters:
        return 0.0
    shares = [count / len(clusters) for count in collections.Counter(clusters).values()]
    return math.exp(-sum(share * math.log(share) for share in shares))
