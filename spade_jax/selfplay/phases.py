"""What the cycle is doing now, and how long each part of an iteration takes."""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """Where the cycle says what it is doing."""

    def phase(self, name: str, total: int) -> None: ...

    def advance(self) -> None: ...


class Unseen:
    """Progress that nobody is shown."""

    def phase(self, name: str, total: int) -> None:
        pass

    def advance(self) -> None:
        pass


class Phases:
    """``with phases("play", total=96):``

    Attributes:
      seconds: wall seconds of each phase since :meth:`clear`.
    """

    def __init__(self, progress: Progress):
        self._progress = progress
        self.seconds: dict[str, float] = {}

    def clear(self) -> None:
        self.seconds = {}

    def advance(self) -> None:
        self._progress.advance()

    @contextlib.contextmanager
    def __call__(self, name: str, total: int) -> Iterator[None]:
        self._progress.phase(name, total)
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - started
