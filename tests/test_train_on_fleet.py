"""A whole run whose environments run on the nodes of a Ray cluster is the run on this machine.

The cluster is reached through Ray Client, as on a pod.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray_cluster import free_ports, patient_cluster

PROGRAM = Path(__file__).with_name("tiny_run.py")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """With the address from outside."""
    [port] = free_ports(1)
    with patient_cluster(nodes=2, ray_client_server_port=port) as cluster:
        yield cluster, f"ray://127.0.0.1:{port}"


def begin(workdir, fleet="", *more):
    command = [sys.executable, str(PROGRAM), str(workdir), *more]
    command += ["--set", "iterations=2", f"sandbox.fleet={fleet!r}", "sandbox.patience=60.0"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def end(process):
    printed, _ = process.communicate(timeout=900)
    assert process.returncode == 0, printed
    return printed


def rows_of(workdir):
    path = workdir / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def outcome(workdir):
    texts = {
        str(file.relative_to(workdir)): file.read_text()
        for kind in ("episodes", "environments", "rejections")
        for file in sorted((workdir / kind).rglob("*.*"))
    }
    return rows_of(workdir), texts


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "alone"
    assert "sandbox tier" in end(begin(workdir))
    assert [row["iteration"] for row in rows_of(workdir)] == [0, 1]
    return workdir


def test_a_node_that_dies_changes_nothing(cluster, alone, tmp_path):
    cluster, address = cluster
    process = begin(tmp_path / "fleet", address)
    while not rows_of(tmp_path / "fleet") and process.poll() is None:
        time.sleep(0.05)
    cluster.kill_node()
    printed = end(process)
    cluster.add_node()
    assert "environments run on 2 nodes" in printed
    assert "is lost" in printed
    assert outcome(tmp_path / "fleet") == outcome(alone)


def test_stopped_on_a_fleet_and_continued_here(cluster, alone, tmp_path):
    _, address = cluster
    stop = ("--signal=SIGTERM", "--phase=play", "--iteration=1", "--delay=0.1")
    assert "stopped and saved" in end(begin(tmp_path / "fleet", address, *stop))
    assert len(rows_of(tmp_path / "fleet")) == 1
    assert "continuing after iteration 0" in end(begin(tmp_path / "fleet"))
    assert outcome(tmp_path / "fleet") == outcome(alone)


def test_no_cluster_is_one_message(tmp_path):
    process = begin(tmp_path / "none", "ray://127.0.0.1:9")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "cannot be reached" in printed
