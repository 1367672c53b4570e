"""Time left, heartbeats and the bars, on a clock of the test's own."""

import io

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
    assert [progress.duration(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]


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


def test_on_a_terminal_the_bars_name_iteration_and_phase():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.RunProgress("iteration", 3, console=console) as bar:
        bar.phase("play", 10)
        bar.advance()
    shown = console.file.getvalue()
    for text in ("iteration", "0/3", "play", "1/10"):
        assert text in shown
