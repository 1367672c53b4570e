"""Who owns which page of the KV cache: running sequences, and the idle prefixes of sessions.

A page may have several owners, which read it; it is written only while it has one.
"""

import collections
import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Cached tokens of an idle session and the pages that hold their keys and values."""

    tokens: Sequence[int]
    pages: list[int]


class Pages:
    """Allocator with an LRU of idle prefixes, which are given up when pages run out."""

    def __init__(self, count: int, size: int):
        self.count, self.size = count, size
        self.clear()

    def clear(self) -> None:
        """Forgets everything: all pages are free."""
        self._free = list(range(self.count - 1, -1, -1))
        self._owners = [0] * self.count
        self._idle: collections.OrderedDict[str, Prefix] = collections.OrderedDict()

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def needed(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.size)

    def grow(self, pages: list[int], tokens: int) -> bool:
        """Adds pages to a sequence's list until it holds ``tokens``; False if there are too few.

        Idle prefixes, least recently used first, are evicted as needed.
        """
        missing = self.needed(tokens) - len(pages)
        while missing > len(self._free) and self._idle:
            self.free_pages(self._idle.popitem(last=False)[1].pages)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            page = self._free.pop()
            self._owners[page] = 1
            pages.append(page)
        return True

    def share(self, pages: Sequence[int]) -> list[int]:
        """The same pages for one more owner."""
        for page in pages:
            self._owners[page] += 1
        return list(pages)

    def free_pages(self, pages: list[int]) -> None:
        """Gives pages back and empties the list; those with other owners stay theirs."""
        for page in reversed(pages):
            self._owners[page] -= 1
            if not self._owners[page]:
                self._free.append(page)
        pages.clear()

    def keep(self, session: str, tokens: Sequence[int], pages: list[int]) -> None:
        """Hands a sequence's cached tokens over to its idle session, in place of what it had."""
        self.release(session)
        used = self.needed(len(tokens))
        self._idle[session] = Prefix(tokens, pages[:used])
        spare = pages[used:]
        self.free_pages(spare)

    def has(self, session: str | None) -> bool:
        """Whether a session has an idle prefix."""
        return session in self._idle

    def take(self, session: str, tokens: Sequence[int]) -> tuple[int, list[int]]:
        """How many leading ``tokens`` the session has cached, and their pages, now the caller's.

        A last page that is part filled and has other owners is not among them: the caller will
        write there.
        """
        prefix = self._idle.pop(session, None)
        if prefix is None:
            return 0, []
        length = _common(prefix.tokens, tokens)
        used = self.needed(length)
        if length % self.size and self._owners[prefix.pages[used - 1]] > 1:
            used -= 1
            length = used * self.size
        spare = prefix.pages[used:]
        self.free_pages(spare)
        return length, prefix.pages[:used]

    def release(self, session: str) -> None:
        """Frees a session's idle prefix, if it has one."""
        if session in self._idle:
            self.free_pages(self._idle.pop(session).pages)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])
