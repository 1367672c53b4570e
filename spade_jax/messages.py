"""What a process says on standard error, line by line, while a live view has the terminal.

Python's warnings and logs, but also what libraries in C++ and child processes write, would land
in the middle of the view. It goes through a file, not a pipe: a process that a library ends at
once leaves its last words there.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

POLL = 0.2
"""Seconds between two looks at the file."""


class Messages:
    """A context manager that appends standard error to a file and tells of each line.

    ``tell`` is called in a thread of its own, at the end in the one that leaves.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]):
        self._path, self._tell = path, tell
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._begun = b""

    def __enter__(self) -> "Messages":
        self._file = self._path.open("ab", buffering=0)
        self._reader = self._path.open("rb", buffering=0)
        self._reader.seek(0, os.SEEK_END)
        sys.stderr.flush()
        self._terminal = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        os.dup2(self._terminal, 2)
        os.close(self._terminal)
        self._over.set()
        self._watcher.join()
        self._read()
        if self._begun:
            self._tell(self._begun.decode("utf-8", "replace"))
        self._reader.close()
        self._file.close()

    def _watch(self) -> None:
        while not self._over.wait(POLL):
            self._read()

    def _read(self) -> None:
        *lines, self._begun = (self._begun + self._reader.readall()).split(b"\n")
        for line in lines:
            if line.strip():
                self._tell(line.decode("utf-8", "replace").rstrip())
