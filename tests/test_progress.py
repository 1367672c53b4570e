"""Time left, heartbeats and the bars, on a clock of the test's own; the live view on a terminal.

The terminal is a real one (a pty), and pyte, an emulator, says what stands on its screen.
"""

import contextlib
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios

import pyte
import pytest
from rich.console import Console

from spade_jax import progress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def plain_console():
    return Console(file=io.StringIO(), force_terminal=False, width=100)


def test_durations():
    assert [progress.duration(s) for s in (0, 59.6, 61, 3661)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:01:01",
    ]


def test_time_left_ignores_the_first_step_once_there_is_another(clock):
    console = plain_console()
    with progress.RunProgress("iteration", 4, console=console) as bar:
        for seconds in (100, 10, 20):
            clock.now += seconds
            bar.step("done")
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "iteration 1/4  done  (5:00 left)",
        "iteration 2/4  done  (0:20 left)",
        "iteration 3/4  done  (0:15 left)",
    ]


def test_a_resumed_run_counts_from_where_it_was(clock):
    console = plain_console()
    with progress.RunProgress("iteration", 8, done=5, console=console) as bar:
        clock.now += 7
        bar.step("done")
    assert console.file.getvalue() == "iteration 6/8  done  (0:14 left)\n"


def test_without_a_terminal_long_phases_speak_now_and_then(clock):
    console = plain_console()
    with progress.RunProgress("warm start", 1, console=console) as bar:
        bar.phase("teaching", 100)
        for _ in range(40):
            clock.now += 1
            bar.advance()
    assert console.file.getvalue().splitlines() == [
        "warm start 0/1  teaching 16/100  (1:24 left)",
        "warm start 0/1  teaching 32/100  (1:08 left)",
    ]


def test_wanted_colours_make_no_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(file=io.StringIO(), width=100)
    assert console.is_terminal
    with progress.RunProgress("iteration", 3, console=console) as bar:
        bar.phase("play", 10)
        bar.advance()
        bar.step("done")
    assert console.file.getvalue() == "iteration 1/3  done  (0:00 left)\n"


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_bars_name_iteration_and_phase():
    console = Console(file=Screen(), force_terminal=True, width=100)
    with progress.RunProgress("iteration", 3, console=console) as bar:
        bar.phase("play", 10)
        bar.advance()
    shown = console.file.getvalue()
    for text in ("iteration", "0/3", "play", "1/10"):
        assert text in shown


TALKATIVE = """
import logging, os, signal, sys, time, warnings
from pathlib import Path
from rich.table import Table
from spade_jax.progress import RunProgress

end, path = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with &
handler = logging.StreamHandler()  # has the standard error of before
with RunProgress("iteration", 3, messages=Path(path)) as bar:
    table = Table("environment", "win rate")
    table.add_row("grid_walk", "0.25")
    bar.show(table)
    for number in range(3):
        bar.phase("play", 4)
        for item in range(4):
            time.sleep(0.1)
            os.write(2, b"library %d.%d\\n" % (number, item))
            bar.advance()
        os.system(f"echo child {number} >&2")
        print("printed", number)
        handler.emit(logging.LogRecord("a", 30, "f", 1, f"logged {number}", (), None))
        bar.step("done")
    bar.warn("look at [this]")
    warnings.warn("outdated")
    os.write(2, b"without an end")
    if end == "error":
        raise RuntimeError("broken")
    if end != "whole":
        Path(path).with_name("asleep").touch()
        time.sleep(60)
"""
SAID = [
    *(f"library {number}.{item}" for number in range(3) for item in range(4)),
    *(f"{who} {number}" for who in ("child", "printed", "logged") for number in range(3)),
    "without an end",
]


class Terminal:
    """A program's terminal of 100 columns, and what an emulator makes of what it writes."""

    def __init__(self, command, environment):
        self._own, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (80, 100))
        self.settings = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, process_group=0
        )
        os.close(theirs)
        self._screen = pyte.Screen(100, 80)
        self._stream = pyte.ByteStream(self._screen)

    def read_all(self):
        """Reads until nobody writes any more."""
        with contextlib.suppress(OSError):  # Linux says so at the end.
            while True:
                self._stream.feed(os.read(self._own, 65536))

    def read_until_there(self, path):
        """Reads until there is such a file."""
        while not path.exists():
            if select.select([self._own], [], [], 0.05)[0]:
                self._stream.feed(os.read(self._own, 65536))

    @property
    def lines(self):
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def as_before(self):
        """Is the cursor to be seen, at the beginning of a line, and are keys handled as before?"""
        shown = not self._screen.cursor.hidden and self._screen.cursor.x == 0
        return shown and termios.tcgetattr(self._own) == self.settings


def on_a_terminal(end, path, term="xterm-256color"):
    environment = {**os.environ, "TERM": term, "PYTHONPATH": os.pathsep.join(sys.path)}
    return Terminal([sys.executable, "-c", TALKATIVE, end, str(path)], environment)


@pytest.mark.parametrize(
    ("end", "status", "last"),
    [("whole", 0, ""), ("error", 1, "RuntimeError: broken"), ("SIGINT", -2, "KeyboardInterrupt"),
     ("SIGTERM", 0, "")],
)  # fmt: skip
def test_nothing_tears_the_live_view_and_the_terminal_comes_back(tmp_path, end, status, last):
    terminal = on_a_terminal(end, tmp_path / "messages.txt")
    if end.startswith("SIG"):
        # Not in the midst of a print, half of which would stay: a run takes signals where it waits.
        terminal.read_until_there(tmp_path / "asleep")
        os.killpg(terminal.process.pid, signal.Signals[end])
    terminal.read_all()
    assert terminal.process.wait(60) == status
    lines = terminal.lines
    for text in SAID:
        assert [line for line in lines if line.rstrip(" ") == text] == [text], "\n".join(lines)
    for once in ("iteration ━", "  play ", " environment ", " grid_walk ", "! without an end"):
        assert sum(once in line for line in lines) == 1, "\n".join(lines)
    assert any("3/3" in line and "iteration ━" in line for line in lines)
    assert [line for line in lines if line.startswith("iteration 3/3  done")]
    assert last in lines[-1]
    assert terminal.as_before
    kept = (tmp_path / "messages.txt").read_text()
    assert "outdated" in kept
    assert set(SAID) - set(kept.splitlines()) == {f"printed {number}" for number in range(3)}


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path):
    terminal = on_a_terminal("whole", tmp_path / "messages.txt", term="dumb")
    terminal.read_all()
    assert terminal.process.wait(60) == 0
    assert "━" not in "".join(terminal.lines)
    assert [line for line in terminal.lines if line.startswith("iteration 3/3  done")]
    assert not (tmp_path / "messages.txt").exists()
