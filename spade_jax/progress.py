"""Progress on the terminal: live bars on a terminal, now and then a line anywhere else."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HEARTBEAT = 15.0
"""Seconds of silence after which a line is printed where there is no terminal."""


def duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class RunProgress:
    """Two bars: work made of ``steps`` equal pieces, and the phase of the present piece.

    Time left of the steps comes from the mean duration of those finished in this process (the
    first, which compiles, counts only while it is alone); that of a phase from its own pace.
    """

    def __init__(self, title: str, steps: int, done: int = 0, console: Console | None = None):
        self.console = console or Console()
        self._title, self._steps, self._done = title, steps, done
        self._durations: list[float] = []
        self._step_started = self._phase_started = self._spoke = time.monotonic()
        self._phase, self._phase_total, self._phase_done = "", 0, 0
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
        self._phase, self._phase_total, self._phase_done = name, total, 0
        self._phase_started = time.monotonic()
        self._bars.reset(
            self._current, description=f"  {name}", total=max(total, 1), visible=True, left=""
        )

    def advance(self) -> None:
        """One item of the phase is done."""
        self._phase_done += 1
        now = time.monotonic()
        pace = (now - self._phase_started) / self._phase_done
        left = f"{duration((self._phase_total - self._phase_done) * pace)} left"
        self._bars.update(self._current, completed=self._phase_done, left=left)
        if not self.console.is_terminal and now - self._spoke > HEARTBEAT:
            self._say(f"{self._phase} {self._phase_done}/{self._phase_total}  ({left})")

    def step(self, message: str) -> None:
        """One of the equal pieces is done; ``message`` is its one-line result."""
        now = time.monotonic()
        self._durations.append(now - self._step_started)
        self._step_started = now
        self._done += 1
        steady = self._durations[1:] or self._durations
        left = duration((self._steps - self._done) * sum(steady) / len(steady))
        self._bars.update(self._overall, completed=self._done, left=f"{left} left")
        self._say(f"{message}  ({left} left)")

    def _say(self, message: str) -> None:
        self._spoke = time.monotonic()
        place = f"{self._title} {self._done}/{self._steps}"
        self.console.print(f"{place}  {message}", highlight=False, soft_wrap=True, markup=False)
