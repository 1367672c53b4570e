"""A pod rehearsed on one machine: every role a process of its own, behind its own ports.

Two trainer processes under ``jax.distributed``, a real SGLang server (on the CPU) and a Ray cluster
of a head and two sandbox nodes go through three iterations, in which one of each kind is killed and
comes back. ``pytest -s`` shows what happens when.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import conftest
import pytest
import test_processes
import test_resume
import tiny_run
from flax import nnx
from ray_cluster import free_ports, patient_cluster

from spade_jax.models import huggingface, loading

sys.path.insert(0, str(Path(__file__).parent / "sampling"))
from real_sglang import RealSGLang

pytestmark = pytest.mark.slow
PATIENCE = 1800.0  # seconds, for a busy machine
BEGUN = time.monotonic()


def note(what):
    print(f"{time.monotonic() - BEGUN:6.1f} s  {what}", flush=True)


class Trainers:
    """Both, of which the second ends itself at ``moment``; what they say is noted as it comes."""

    def __init__(self, workdir, url, fleet, moment=()):
        self._metrics, self.said = workdir / "metrics.jsonl", ""
        changes = (
            f"sandbox.fleet={fleet!r}", f"sandbox.patience={PATIENCE}",
            f"sampler.patience={PATIENCE}", "sampler.timeout=300.0",
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            options = ("--urls", url, "--set", *changes)
            self._processes = test_processes.start(workdir, *options, moments=((), moment))
        readers = [threading.Thread(target=self._read, args=(index,)) for index in range(2)]
        for reader in readers:
            reader.start()
        self._readers = readers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
        self.end()

    def _read(self, index):
        for line in self._processes[index].stdout:
            self.said += line
            note(f"trainer {index}: {line.rstrip()}")

    def wait_for_rows(self, count):
        until = time.monotonic() + PATIENCE
        while not self._metrics.exists() or self._metrics.read_text().count("\n") < count:
            assert [process.poll() for process in self._processes] == [None, None]
            assert time.monotonic() < until
            time.sleep(0.1)

    def end(self):
        """Status of both."""
        statuses = [process.wait(PATIENCE) for process in self._processes]
        for reader in self._readers:
            reader.join()
        return statuses


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serves a first policy of the run's architecture."""
    folder = tmp_path_factory.mktemp("server")
    tokenizer = conftest.make_byte_tokenizer()
    model, _ = loading.load(tiny_run.settings(urls="http://unused").model, 0)
    known = huggingface.with_tokens(model.config, tokenizer)
    huggingface.save(folder / "policy", known, nnx.split(model)[1], tokenizer)
    server = RealSGLang(folder / "policy", folder / "log")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster():
    """With the address at which the trainers reach it."""
    [port] = free_ports(1)
    with patient_cluster(nodes=2, ray_client_server_port=port) as cluster:
        yield cluster, f"ray://127.0.0.1:{port}"


def test_three_iterations_in_which_one_of_each_kind_is_lost(server, cluster, tmp_path):
    cluster, fleet = cluster
    workdir = tmp_path / "run"
    moment = ("--phase", "learn", "--iteration", 2)  # where the other waits for its devices
    note("server and Ray nodes are there; the trainers start")
    with Trainers(workdir, server.url, fleet, moment) as trainers:
        trainers.wait_for_rows(1)
        server.kill()
        note("the server is killed")
        server.start()
        note("the server answers again")
        trainers.wait_for_rows(2)
        cluster.kill_node()
        note("a sandbox node is killed")
        cluster.add_node()
        note("a sandbox node has joined")
        first, second = trainers.end()
    note(f"the trainers have ended: {first}, {second}")
    assert second == -signal.SIGKILL
    assert first != 0
    assert "is lost" in trainers.said

    with Trainers(workdir, server.url, fleet) as trainers:
        assert trainers.end() == [0, 0]
    note("the trainers have ended")
    assert "continuing after iteration 1" in trainers.said
    rows = test_resume.rows_of(workdir)
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert rows[1]["sampler/faults"] >= 1
    for row in rows:
        assert row["sampler/given_up"] == row["episodes/plain_dropped"] == 0
        assert row["episodes/plain"] == 6 * row["environments/accepted"] > 0
    assert (workdir / "checkpoints" / "3").exists()
