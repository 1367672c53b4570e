"""What to run next: admission, chunked prefill, decode, preemption. No device code.

A sequence's last token is never prefilled: decoding feeds it, which yields the first new token.
So a sequence is ready to decode when all its tokens but the last are cached.

Sequences of one prompt share its whole pages: while one of them has the prompt's keys and values
in hand or under way, the others wait for it, then take its pages and a copy of the last, part
filled one.
"""

import collections
import dataclasses
import functools

import numpy as np

from spade_jax.sampling.interface import Request
from spade_jax.sampling.native.pages import Pages


@dataclasses.dataclass(eq=False)
class Sequence:
    """One request on its way.

    Attributes:
      tokens: prompt and what was drawn so far.
      logp, versions: one per drawn token.
      limit: length at which it ends: prompt + max_tokens, or the context.
      cached: leading tokens whose keys and values are in ``pages``.
      served: decode calls it took part in.
    """

    request: Request
    noise_key: np.ndarray
    tokens: list[int]
    limit: int
    logp: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)
    cached: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)
    served: int = 0

    @property
    def uncached(self) -> int:
        """Tokens to prefill."""
        return len(self.tokens) - 1 - self.cached

    @functools.cached_property
    def prompt(self) -> bytes:
        """Equal for sequences of equal prompts."""
        return np.asarray(self.request.tokens, np.int32).tobytes()

    @property
    def prompt_cache(self) -> int:
        """Positions that it has in common with sequences of the same prompt."""
        return len(self.request.tokens) - 1

    @property
    def has_prompt(self) -> bool:
        """Whether they are all cached."""
        return self.cached >= self.prompt_cache


@dataclasses.dataclass(frozen=True)
class CopyPlan:
    """Pages to copy, in ``pairs`` of (from, to)."""

    pairs: list[tuple[int, int]]


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
      prefill: (rows, tokens of a row), the longest chunk first; about as many places in each.
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
        prefill = {
            (min(4, slots), chunk),
            (min(16, slots), -(-chunk // 4)),
            (min(64, slots), -(-chunk // 16)),
        }
        return cls(tuple(sorted(prefill, key=lambda s: -s[1])), tuple(rows), tuple(lengths), pages)

    def length(self, cached: int, page_size: int) -> int:
        """Fewest compiled pages that hold ``cached`` tokens."""
        return next(pages for pages in self.pages if pages * page_size >= cached)

    def allowed(self, rows: int, pages: int) -> bool:
        """Whether such a call stays within the budget. One row always does."""
        return rows == 1 or rows * pages <= self.budget

    def prefills(self) -> list[tuple[int, int, int]]:
        """All (rows, chunk, pages)."""
        shapes = set()
        for pages in self.pages:
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
        if session is None or not sequence.cached:
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

    def recompute(self) -> None:
        """Forgets every key and value, of sequences under way too: the weights have changed."""
        while self._running:
            sequence = self._running.pop()
            self._preempt(sequence)
            self._waiting.appendleft(sequence)
        self.pages.clear()

    def plan(self) -> CopyPlan | PrefillPlan | DecodePlan | None:
        """The next call, its pages owned; None if there is nothing to do."""
        pairs = self._admit()
        return CopyPlan(pairs) if pairs else self._plan_prefill() or self._plan_decode()

    def _admit(self) -> list[tuple[int, int]]:
        """Moves sequences from the queue to the running set; pages to copy before they run."""
        pairs: list[tuple[int, int]] = []
        leaders: dict[bytes, Sequence] = {}
        for sequence in self._running:
            _lead(leaders, sequence)
        for sequence in list(self._waiting):
            if len(self._running) == self._slots:
                break
            leader = self._leader(leaders, sequence)
            if leader is not None and not leader.has_prompt:
                continue
            if leader is not None:
                whole = sequence.prompt_cache // self.pages.size
                sequence.pages = self.pages.share(leader.pages[:whole])
                sequence.cached = sequence.prompt_cache
            elif sequence.request.session is not None:
                sequence.cached, sequence.pages = self.pages.take(
                    sequence.request.session, sequence.tokens[:-1]
                )
            if not self.pages.grow(sequence.pages, self._ahead(sequence)):
                self._preempt(sequence)
                break
            if leader is not None and sequence.cached % self.pages.size:
                pairs.append((leader.pages[whole], sequence.pages[whole]))
            self._waiting.remove(sequence)
            self._running.append(sequence)
            _lead(leaders, sequence)
        return pairs

    def _leader(self, leaders: dict[bytes, Sequence], sequence: Sequence) -> Sequence | None:
        """A running sequence of the same prompt, if its pages are of use to this one."""
        session = sequence.request.session
        if sequence.prompt_cache < self.pages.size or self.pages.has(session):
            return None
        return leaders.get(sequence.prompt)

    def _ahead(self, sequence: Sequence) -> int:
        """Tokens that it may have after the next call."""
        return min(len(sequence.tokens) + self._steps, sequence.limit)

    def _plan_prefill(self) -> PrefillPlan | None:
        """In the shape that gets most tokens done."""
        todo = [sequence for sequence in self._running if sequence.uncached > 0]
        if not todo:
            return None
        todo.sort(key=lambda sequence: -sequence.uncached)

        def done(shape: tuple[int, int]) -> int:
            return sum(min(sequence.uncached, shape[1]) for sequence in todo[: shape[0]])

        rows, chunk = max(self.shapes.prefill, key=done)
        longest = max(sequence.cached for sequence in todo[:rows])
        pages = self.shapes.length(longest, self.pages.size)
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
        while not self.pages.grow(sequence.pages, self._ahead(sequence)):
            last = self._running.pop()
            self._preempt(last)
            self._waiting.appendleft(last)
            if last is sequence:
                return

    def _preempt(self, sequence: Sequence) -> None:
        """Frees a sequence's pages; what it has drawn is kept and will be prefilled again."""
        self.pages.free_pages(sequence.pages)
        sequence.cached = 0


def _lead(leaders: dict[bytes, Sequence], sequence: Sequence) -> None:
    """Enters a running sequence as the one that others of its prompt follow."""
    known = leaders.get(sequence.prompt)
    if known is None or not known.has_prompt:
        leaders[sequence.prompt] = sequence
