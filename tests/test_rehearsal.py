"""A pod rehearsed on one machine: every role a process of its own, behind its own ports.

Two trainer processes under ``jax.distributed``, the fake SGLang server and a Ray cluster of a head
and two sandbox nodes go through three iterations, in which one of each kind is killed and comes
back.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import test_processes
import test_resume
from ray_cluster import patient_cluster

pytestmark = pytest.mark.slow
PATIENCE = 1800.0  # seconds, for a busy machine
SAMPLING = Path(__file__).parent / "sampling"
FAKE = (
    "import threading; from fake_sglang import FakeSGLang; "
    "FakeSGLang(259, port={port}); threading.Event().wait()"
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The fake SGLang server in a process of its own, started again at the same address."""

    def __init__(self):
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self):
        command = [sys.executable, "-c", FAKE.format(port=self._port)]
        self._process = subprocess.Popen(command, cwd=SAMPLING)

    def kill(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster():
    """With the address at which the trainers reach it."""
    port = free_port()
    with patient_cluster(nodes=2, ray_client_server_port=port) as cluster:
        yield cluster, f"ray://127.0.0.1:{port}"


def begin(workdir, url, fleet, moment=()):
    """Both trainers; the second ends itself at ``moment``."""
    changes = (
        f"sandbox.fleet={fleet!r}", f"sandbox.patience={PATIENCE}",
        f"sampler.patience={PATIENCE}", "sampler.timeout=300.0",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        options = ("--urls", url, "--set", *changes)
        return test_processes.start(workdir, *options, moments=((), moment))


def rows_of(workdir):
    return test_resume.rows_of(workdir) if (workdir / "metrics.jsonl").exists() else []


def wait_for_rows(workdir, count, trainers):
    until = time.monotonic() + PATIENCE
    while len(rows_of(workdir)) < count:
        for trainer in trainers:
            assert trainer.poll() is None, trainer.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.1)


def ended(trainers):
    """Output and status of both."""
    outputs = [trainer.communicate(timeout=PATIENCE)[0] for trainer in trainers]
    return outputs, [trainer.returncode for trainer in trainers]


def test_three_iterations_in_which_one_of_each_kind_is_lost(server, cluster, tmp_path):
    cluster, fleet = cluster
    workdir = tmp_path / "run"
    moment = ("--phase", "learn", "--iteration", 2)  # where the other waits for its devices
    trainers = begin(workdir, server.url, fleet, moment)
    with contextlib.ExitStack() as whatever_happens:
        for trainer in trainers:
            whatever_happens.callback(trainer.kill)
        wait_for_rows(workdir, 1, trainers)
        server.kill()
        server.start()
        wait_for_rows(workdir, 2, trainers)
        cluster.kill_node()
        cluster.add_node()
        outputs, (first, second) = ended(trainers)
    assert second == -signal.SIGKILL
    assert first != 0, outputs[0]
    assert "is lost" in "".join(outputs)

    trainers = begin(workdir, server.url, fleet)
    with contextlib.ExitStack() as whatever_happens:
        for trainer in trainers:
            whatever_happens.callback(trainer.kill)
        outputs, statuses = ended(trainers)
    assert statuses == [0, 0], "".join(outputs)
    assert "continuing after iteration 1" in outputs[0]
    rows = rows_of(workdir)
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert rows[1]["sampler/faults"] >= 1
    for row in rows:
        assert row["sampler/given_up"] == row["episodes/plain_dropped"] == 0
        assert row["episodes/plain"] == 6 * row["environments/accepted"] > 0
    assert (workdir / "checkpoints" / "3").exists()
