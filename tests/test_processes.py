"""Two processes of one run, as real ones: whole, killed, stopped, continued.

The run is that of ``tests/tiny_run.py``, over two CPU devices of which each process has one.
"""

import os
import signal
import socket
import subprocess
import sys

import pytest
import test_resume

from spade_jax import config, processes


def start(workdir, *more, moments=((), ())):
    """Both processes, of which each can be given a moment at which it ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"--coordinator=127.0.0.1:{probe.getsockname()[1]}"
    return [
        subprocess.Popen(
            [sys.executable, str(test_resume.PROGRAM), str(workdir), coordinator,
             f"--process={index}", *map(str, (*more, *moments[index]))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        for index in range(2)
    ]  # fmt: skip


def run(workdir, *more, moments=((), ())):
    """Exit status and output of each process."""
    running = start(workdir, *more, moments=moments)
    outputs = [process.communicate(timeout=900)[0] for process in running]
    return [(process.returncode, text) for process, text in zip(running, outputs, strict=True)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run, in which both roles have learnt something."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    for code, text in run(workdir):
        assert code == 0, text
    rows = test_resume.rows_of(workdir)
    assert [row["iteration"] for row in rows] == list(range(5))
    assert any(row["grad_norm/agent"] > 0 for row in rows)
    assert any(row["grad_norm/designer"] > 0 for row in rows)
    return workdir


def test_killed_stopped_and_continued_changes_nothing(whole):
    """One is killed, and the other ends with its name; one is told to stop, and both save."""
    workdir = whole.with_name("broken")
    moment = ("--phase", "play", "--iteration", 2, "--delay", 0.01)
    (code, text), (killed, _) = run(
        workdir, "--set", "processes.deadline=30.0", moments=((), moment)
    )
    assert killed == -signal.SIGKILL
    assert code == 1, text
    assert "process 1 of 2 did not come to exchange episodes within 30 s" in text

    moment = ("--signal", "SIGTERM", "--phase", "play", "--iteration", 3, "--delay", 0.01)
    (code, text), (other, more) = run(workdir, moments=((), moment))
    assert (code, other) == (0, 0), text + more
    assert "continuing after iteration" in text
    assert "stopped and saved" in text

    (code, text), (other, more) = run(workdir)
    assert (code, other) == (0, 0), text + more
    assert "continuing after iteration 2" in text
    test_resume.assert_equal(workdir, whole)


def test_replicas_are_of_as_many_processes():
    """There is one here, and groups of two cannot be made of it."""
    with pytest.raises(config.ConfigError, match=r"not divide .* processes, 1; what works: 0, 1"):
        processes.replica(config.Processes(), 2)


def test_a_failure_of_one_ends_both_with_its_reason(tmp_path):
    """The second process cannot know of the run directory that the first one finds in use."""
    (tmp_path / "file").touch()
    (code, text), (other, more) = run(tmp_path / "file")
    assert (code, other) == (1, 1)
    assert "is a file; name a directory" in text
    assert "ProcessFault: process 0 failed: ConfigError" in more
