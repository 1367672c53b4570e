"""Progress on the terminal: a live bar on a terminal, a line a phase anywhere else."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)


def duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class RunProgress:
    """Shows iteration, phase, and time left for ``steps`` equal pieces of work.

    Time left is estimated from the mean duration of the pieces finished in this process; the
    first one, which compiles, counts only while it is alone.
    """

    def __init__(self, title: str, steps: int, done: int = 0, console: Console | None = None):
        self.console = console or Console()
        self._title = title
        self._steps = steps
        self._done = done
        self._durations: list[float] = []
        self._started = time.monotonic()
        self._phase = ""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._overall = self._bars.add_task(title, total=steps, completed=done, left="")
        self._current = self._bars.add_task("", total=None, visible=False, left="")

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int) -> None:
        """Announces a phase of the current step, made of ``total`` items."""
        self._phase = name
        self._bars.reset(
            self._current, description=f"  {name}", total=max(total, 1), visible=True, left=""
        )

    def advance(self) -> None:
        """One item of the phase is done."""
        self._bars.advance(self._current)

    def step(self, message: str) -> None:
        """One of the equal pieces is done; ``message`` is its one-line result."""
        now = time.monotonic()
        self._durations.append(now - self._started)
        self._started = now
        self._done += 1
        left = self._left()
        self._bars.update(self._overall, completed=self._done, left=f"{left} left")
        self.console.print(
            f"{self._title} {self._done}/{self._steps}  {message}  ({left} left)",
            highlight=False,
            soft_wrap=True,
        )

    def _left(self) -> str:
        steady = self._durations[1:] or self._durations
        return duration((self._steps - self._done) * sum(steady) / len(steady))
