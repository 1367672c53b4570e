"""Killed at any moment and started again, a run is the run that would have happened.

The kills are real: ``tests/tiny_run.py`` gets a signal some time after a phase has begun.
"""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.selfplay import manifest

PROGRAM = Path(__file__).with_name("tiny_run.py")
PHASES = {
    True: ("design", "hint", "play", "learn", "weights", "save"),  # first iteration of an epoch
    False: ("play", "learn", "weights", "save"),
}


def run(workdir, *more):
    command = [sys.executable, str(PROGRAM), str(workdir), *map(str, more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def rows_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def outcome(workdir):
    """All that a run leaves behind, but for what it owes to the clock."""
    rows = rows_of(workdir)
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]
    files = {
        str(path.relative_to(workdir)): path.read_text()
        for folder in ("environments", "rejections", "episodes")
        for path in sorted((workdir / folder).rglob("*.*"))
    }
    tables = {table: manifest.read(workdir, table).to_pylist() for table in manifest.SCHEMAS}
    with Checkpoints(workdir / "checkpoints", keep=1, writable=False) as checkpoints:
        step = checkpoints.latest()
        place = workdir.absolute() / "checkpoints" / str(step) / "arrays"
        saved = ocp.StandardCheckpointer().metadata(place).item_metadata.tree
        here = jax.sharding.SingleDeviceSharding(jax.devices()[0])  # not where it was
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), saved)
        arrays, data = checkpoints.restore(step, like)
        assert jax.tree.leaves(arrays)
        assert data["selfplay"]["iteration"] == step
    return rows, files, tables, step, data, jax.tree.map(np.asarray, arrays)


def assert_equal(workdir, whole):
    ours, theirs = outcome(workdir), outcome(whole)
    for left, right in zip(ours[:-1], theirs[:-1], strict=True):
        assert left == right
    jax.tree.map(np.testing.assert_array_equal, ours[-1], theirs[-1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run, in which both roles have learnt something."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    done = run(workdir)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(workdir)
    assert any(row["grad_norm/agent"] > 0 for row in rows)
    assert any(row["grad_norm/designer"] > 0 for row in rows)
    return workdir


def moments(seed, rows):
    """One moment in each of four iterations: a phase, and a time within its usual length."""
    rng = random.Random(seed)
    chosen = []
    for iteration in range(4):
        phase = rng.choice(PHASES[iteration % 2 == 0])
        length = rows[iteration].get(f"time/{phase}", 0.1)
        chosen.append((iteration, phase, rng.uniform(0, length)))
    return chosen


def break_and_continue(workdir, whole, seed):
    for iteration, phase, delay in moments(seed, rows_of(whole)):
        died = run(workdir, "--phase", phase, "--iteration", iteration, "--delay", delay)
        assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    done = run(workdir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after iteration" in done.stdout
    assert_equal(workdir, whole)


def test_four_kills_change_nothing(whole):
    break_and_continue(whole.with_name("killed"), whole, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_twenty_kills_over_every_phase_change_nothing(whole, seed):
    break_and_continue(whole.with_name(f"killed-{seed}"), whole, seed)


def test_the_kills_are_spread_over_every_phase():
    rows = [{}] * 4
    phases = [phase for seed in range(1, 6) for _, phase, _ in moments(seed, rows)]
    assert len(phases) == 20
    assert set(phases) == set(PHASES[True])


CLAIM = """
import dataclasses, sys
from pathlib import Path
from rich.console import Console
from spade_jax import config, train

workdir, iterations, allow = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["allow"]
trackers = config.Trackers(tensorboard=iterations > 7)
settings = config.Config(iterations=iterations, trackers=trackers)
try:
    with train.claim(workdir, settings, Console(width=200), allow):
        (workdir / "metrics.jsonl").touch()
        print("claimed")
except config.ConfigError as error:
    print("refused:", error)
"""


def test_a_changed_config_is_shown_and_refused_unless_allowed(tmp_path):
    def claim(*arguments):
        command = [sys.executable, "-c", CLAIM, str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    difference = "  config.iterations: 7 there, 9 asked for\n"
    assert claim("7") == "claimed\n"
    refused = claim("9")
    assert refused.startswith("refused:")
    assert refused.endswith(difference)  # trackers may always change
    assert "--allow-config-change" in refused
    assert claim("9", "allow") == f"settings change:\n{difference}claimed\n"
    assert claim("9") == "claimed\n"


def test_sigterm_saves_and_ends_well(whole):
    workdir = whole.with_name("terminated")
    moment = ("--phase", "play", "--iteration", 1, "--delay", 0.01)
    done = run(workdir, "--signal", "SIGTERM", *moment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped and saved" in done.stdout
    assert [row["iteration"] for row in rows_of(workdir)] == [0]
    done = run(workdir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after iteration 0" in done.stdout
    assert_equal(workdir, whole)
