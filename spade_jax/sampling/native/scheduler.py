"""What to run next: admission, chunked prefill, decode, preemption. No device code.

A sequence's last token is never prefilled: decoding feeds it, which yields the first new token.
So a sequence is ready to decode when all its tokens but the last are cached.
"""

import collections
import dataclasses

import numpy as np

from spade_jax.sampling.interface import Request
from spade_jax.sampling.native.pages import Pages


@dataclasses.dataclass(eq=False)
class Sequence:
    """One request on its way.

    Attributes:
      tokens: prompt and what was drawn so far.
      logp: one per drawn token.
      limit: length at which it ends: prompt + max_tokens, or the context.
      cached: leading tokens whose keys and values are in ``pages``.
      served: decode calls it took part in.
    """

    request: Request
    noise_key: np.ndarray
    tokens: list[int]
    limit: int
    logp: list[float] = dataclasses.field(default_factory=list)
    cached: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)
    served: int = 0

    @property
    def uncached(self) -> int:
        """Tokens to prefill."""
        return len(self.tokens) - 1 - self.cached


@dataclasses.dataclass(frozen=True)
class PrefillPlan:
    """Sequences to prefill, ``count[i]`` tokens of each, in the compiled shape."""

    sequences: list[Sequence]
    counts: list[int]
    rows: int
    chunk: int
    pages: int


@dataclasses.dataclass(frozen=True)
class DecodePlan:
    """Sequences to decode in the compiled shape."""

    sequences: list[Sequence]
    rows: int
    pages: int


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The shapes that are compiled; every plan has one of them.

    Attributes:
      prefill: (rows, tokens of a row), the longest chunk first.
      rows: sequences of a decode call, descending.
      pages: cached pages of a sequence that a call attends to, ascending.
      budget: largest rows x pages of a call: bounds its working memory.
    """

    prefill: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    pages: tuple[int, ...]
    budget: int

    @classmethod
    def choose(cls, slots: int, chunk: int, context: int, page_size: int, pages: int) -> "Shapes":
        """Powers of two in cached length from 256 tokens, powers of four in rows."""
        last = -(-context // page_size)
        lengths = [min(-(-256 // page_size), last)]
        while lengths[-1] < last:
            lengths.append(min(2 * lengths[-1], last))
        rows = [slots]
        while rows[-1] > 1:
            rows.append(-(-rows[-1] // 4))
        prefill = {(min(4, slots), chunk), (min(16, slots), -(-chunk // 4))}
        return cls(tuple(sorted(prefill, key=lambda s: -s[1])), tuple(rows), tuple(lengths), pages)

    def length(self, cached: int, page_size: int) -> int:
        """Fewest compiled pages that hold ``cached`` tokens."""
        return next(pages for pages in self.pages if pages * page_size >= cached)

    def allowed(self, rows: int, pages: int) -> bool:
        """Whether such a call stays within the budget. One row always does."""
        return rows == 1 or rows * pages <= self.budget

    def prefills(self) -> list[tuple[int, int, int]]:
        """All (rows, chunk, pages), calls without cached tokens included."""
        shapes = set()
        for pages in (0, *self.pages):
            for rows, chunk in self.prefill:
                rows, chunk = self.within_budget(rows, chunk, pages)
                shapes.add((rows, chunk, pages))
        return sorted(shapes)

    def within_budget(self, rows: int, chunk: int, pages: int) -> tuple[int, int]:
        """The prefill shape to use where (rows, chunk) is wanted: one long row if need be."""
        return (rows, chunk) if self.allowed(rows, pages) else (1, self.prefill[0][1])

    def decodes(self) -> list[tuple[int, int]]:
        """All (rows, pages)."""
        return [(r, p) for r in self.rows for p in self.pages if self.allowed(r, p)]


class Scheduler:
    """The queue and the running set; first come, first served."""

    def __init__(self, pages: Pages, shapes: Shapes, slots: int, decode_steps: int):
        self.pages, self.shapes = pages, shapes
        self._slots, self._steps = slots, decode_steps
        self._waiting: collections.deque[Sequence] = collections.deque()
        self._running: list[Sequence] = []

    @property
    def empty(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._running

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence."""
        self._waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out; its session keeps what is cached."""
        self._running.remove(sequence)
        session = sequence.request.session
        if session is None:
            self.pages.free_pages(sequence.pages)
        else:
            self.pages.keep(session, sequence.tokens[: sequence.cached], sequence.pages)

    def cancel(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and frees its memory."""
        for place in (self._waiting, self._running):
            if sequence in place:
                place.remove(sequence)
        self.pages.free_pages(sequence.pages)

    def clear(self) -> list[Sequence]:
        """Takes everything out and forgets every prefix."""
        dropped = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self.pages.clear()
        for sequence in dropped:
            sequence.pages = []
        return dropped

    def plan(self) -> PrefillPlan | DecodePlan | None:
        """The next call, its pages owned; None if there is nothing to do."""
        self._admit()
        return self._plan_prefill() or self._plan_decode()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            sequence = self._waiting[0]
            if sequence.request.session is not None and not sequence.pages:
                sequence.cached, sequence.pages = self.pages.take(
                    sequence.request.session, sequence.tokens[:-1]
                )
            ahead = min(len(sequence.tokens) + self._steps, sequence.limit)
            if not self.pages.grow(sequence.pages, ahead):
                self._preempt(sequence)
                return
            self._running.append(self._waiting.popleft())

    def _plan_prefill(self) -> PrefillPlan | None:
        todo = [sequence for sequence in self._running if sequence.uncached > 0]
        if not todo:
            return None
        rows, chunk = self.shapes.prefill[-1]
        if any(sequence.uncached > chunk for sequence in todo):
            rows, chunk = self.shapes.prefill[0]
            todo.sort(key=lambda sequence: -min(sequence.uncached, chunk))
        todo = todo[:rows]
        length = max(sequence.cached for sequence in todo)
        pages = self.shapes.length(length, self.pages.size) if length else 0
        rows, chunk = self.shapes.within_budget(rows, chunk, pages)
        todo = todo[:rows]
        counts = [min(sequence.uncached, chunk) for sequence in todo]
        return PrefillPlan(todo, counts, rows, chunk, pages)

    def _plan_decode(self) -> DecodePlan | None:
        """As many as fit a shape: those served least first, then the shortest."""
        for sequence in list(self._running):
            if sequence in self._running:
                self._make_room(sequence)
        chosen: list[Sequence] = []
        shape = None
        for sequence in sorted(self._running, key=lambda s: (s.served, s.cached)):
            larger = self._decode_shape([*chosen, sequence])
            if larger is None:
                break
            chosen, shape = [*chosen, sequence], larger
        return None if shape is None else DecodePlan(chosen, *shape)

    def _decode_shape(self, sequences: list[Sequence]) -> tuple[int, int] | None:
        rows = min(rows for rows in self.shapes.rows if rows >= len(sequences))
        longest = max(sequence.cached for sequence in sequences)
        pages = self.shapes.length(longest, self.pages.size)
        return (rows, pages) if self.shapes.allowed(rows, pages) else None

    def _make_room(self, sequence: Sequence) -> None:
        """Pages for the tokens of the next call, preempting whoever came last."""
        ahead = min(len(sequence.tokens) + self._steps, sequence.limit)
        while not self.pages.grow(sequence.pages, ahead):
            last = self._running.pop()
            self._preempt(last)
            self._waiting.appendleft(last)
            if last is sequence:
                return

    def _preempt(self, sequence: Sequence) -> None:
        """Frees a sequence's pages; what it has drawn is kept and will be prefilled again."""
        self.pages.free_pages(sequence.pages)
        sequence.cached = 0
