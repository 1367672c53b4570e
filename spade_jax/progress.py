"""Progress on the terminal: a live view on a terminal, now and then a line anywhere else."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from spade_jax.messages import Messages

HEARTBEAT = 15.0
"""Seconds of silence after which a line is printed where there is no terminal."""
WARNINGS = 3
"""So many of the last ones stay in the live view."""


def duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class RunProgress:
    """Two bars: work made of ``steps`` equal pieces, and the phase of the present piece.

    Time left of the steps comes from the mean duration of those finished in this process (the
    first, which compiles, counts only while it is alone); that of a phase from its own pace.

    Under the bars of a terminal stand what :meth:`show` was given and the last warnings. Whatever
    is printed meanwhile appears above them; so does standard error, which goes through
    ``messages``, a file that keeps it.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        done: int = 0,
        console: Console | None = None,
        messages: Path | None = None,
    ):
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
        )
        self._overall = self._bars.add_task(title, total=steps, completed=done, left="")
        self._current = self._bars.add_task("", total=None, visible=False, left="")
        self._shown: Sequence[RenderableType] = ()
        self._warnings: tuple[str, ...] = ()
        terminal = self.console.is_terminal and not self.console.is_dumb_terminal
        # FORCE_COLOR, which notebooks and CI set, makes rich take any file for a terminal.
        self._live = terminal and self.console.file.isatty() and not self.console.quiet
        self._messages = messages
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "RunProgress":
        with contextlib.ExitStack() as opening:
            path = self._messages if self._live and os.isatty(2) else None
            if self._live:
                live = Live(
                    console=self.console, get_renderable=self._view, redirect_stderr=path is None
                )
                opening.enter_context(live)
            if path:
                opening.enter_context(Messages(path, self.warn))
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

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
        if not self._live and now - self._spoke > HEARTBEAT:
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

    def show(self, *parts: RenderableType) -> None:
        """What is to stand under the bars of a terminal from now on."""
        self._shown = parts

    def warn(self, message: str) -> None:
        """Prints a line that stays in sight for a while."""
        self._warnings = (*self._warnings, message)[-WARNINGS:]
        self._print(message)

    def _view(self) -> Group:
        warnings = [
            Text(f"! {message}", "yellow", overflow="ellipsis", no_wrap=True)
            for message in self._warnings
        ]
        return Group(self._bars.get_renderable(), *self._shown, *warnings)

    def _say(self, message: str) -> None:
        self._spoke = time.monotonic()
        self._print(f"{self._title} {self._done}/{self._steps}  {message}")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)
