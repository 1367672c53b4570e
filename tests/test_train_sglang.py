"""A whole run of a tiny model on two SGLang servers that fail now and then."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import test_processes

sys.path.insert(0, str(Path(__file__).parent / "sampling"))
from fake_sglang import FakeSGLang

from spade_jax.selfplay import manifest

PROGRAM = Path(__file__).with_name("tiny_run.py")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Metrics of a run of 3 iterations."""
    workdir = tmp_path_factory.mktemp("sglang") / "run"
    servers = [FakeSGLang(259), FakeSGLang(259)]
    servers[0].faults["/generate"] += [*[None] * 20, "500", None, "truncated", None, "restart"]
    servers[1].faults["/generate"] += [*[None] * 30, "reset in the middle", "missing fields"]
    servers[0].faults["/update_weights_from_disk"] += [None, "failed but loaded"]
    urls = ",".join(server.url for server in servers)
    command = [sys.executable, str(PROGRAM), str(workdir), "--urls", urls]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    finally:
        for server in servers:
            server.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((workdir / "weights").iterdir())) == 2
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_the_run_ends_and_no_episode_pays_for_a_server(rows):
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for row in rows:
        dropped = [value for name, value in row.items() if name.endswith("_dropped")]
        assert sum(dropped) == row["sampler/given_up"] == 0
        assert row["episodes/plain"] == 6 * row["environments/accepted"] > 0


def test_faults_are_counted_by_kind(rows):
    for kind in ("status", "json", "stale", "broken", "fields", "update"):
        assert sum(row.get(f"sampler/faults/{kind}", 0) for row in rows) >= 1, kind
    assert rows[-1]["sampler/servers"] >= 1
    assert rows[-1]["weights/bytes"] > 0


def test_servers_and_learner_agree_on_log_probs(rows):
    """Four of five tokens: the fifth was written by the harness, with a log-prob made up."""
    trained = [row for row in rows if row["trained_tokens/agent"]]
    assert trained
    for row in trained:
        assert row["logp_gap/agent/p50"] < 1e-4
    assert any(row["grad_norm/agent"] > 0 for row in trained)


@pytest.mark.slow
def test_killed_while_the_next_iteration_is_sampled_nothing_counts_twice(tmp_path):
    """Once while it learns, once as it saves, once stopped; every part is then told once."""
    workdir, server = tmp_path / "run", FakeSGLang(259)
    command = [sys.executable, str(PROGRAM), str(workdir), "--urls", server.url,
               "--set", "schedule.overlap='next_iteration'"]  # fmt: skip
    moments = [("SIGKILL", "learn", 1), ("SIGKILL", "save", 0), ("SIGTERM", "learn", 1)]
    try:
        for name, phase, iteration in moments:
            moment = ["--signal", name, "--phase", phase, "--iteration", str(iteration)]
            died = subprocess.run([*command, *moment], capture_output=True, text=True, timeout=900)
            assert died.returncode == (0 if name == "SIGTERM" else -9), died.stdout + died.stderr
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    finally:
        server.close()
    assert "stopped and saved" in died.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after iteration 1" in done.stdout  # SIGTERM lost no step
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert max(row.get("lag/agent/max", 0) for row in rows) <= 1
    tables = {table: manifest.read(workdir, table).to_pylist() for table in manifest.SCHEMAS}
    plays = [(p["sha"], p["iteration"], p["arm"], p["play"]) for p in tables["plays"]]
    assert len(plays) == len(set(plays))
    for row in rows:
        of_row = [play for play in tables["plays"] if play["iteration"] == row["iteration"]]
        scored = sum(play["return"] is not None for play in of_row)
        assert scored == row["episodes/plain"] + row["episodes/hinted"]
    environments = [environment["sha"] for environment in tables["environments"]]
    assert len(environments) == len(set(environments)) > 0
    assert len(environments) == len(list((workdir / "environments").iterdir()))
    paid = [designer["sha"] for designer in tables["designers"]]
    assert sorted(paid) == sorted(environments)  # the last iteration pays what is left


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["none", "next_iteration"])
def test_two_processes_write_the_weights_together_and_one_has_them_loaded(tmp_path, overlap):
    """Each server loads each version once, though both processes sample from it."""
    servers = [FakeSGLang(259), FakeSGLang(259)]
    urls = ",".join(server.url for server in servers)
    try:
        done = test_processes.run(
            tmp_path / "run", "--urls", urls, "--set", f"schedule.overlap={overlap!r}"
        )
    finally:
        for server in servers:
            server.close()
    for code, text in done:
        assert code == 0, text
    for server in servers:
        loaded = [
            body["weight_version"]
            for path, body in server.calls
            if path == "/update_weights_from_disk"
        ]
        assert [label[:14] for label in loaded] == [f"version-{n:06d}" for n in range(4)]
    newest = max((tmp_path / "run/weights").iterdir())
    assert len(list(newest.glob("*.safetensors"))) >= 2
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["sampler/faults"] == row["sampler/given_up"] == 0
        assert row["episodes/plain"] == 6 * row["environments/accepted"] > 0
        assert row["lag/agent/max"] <= (overlap != "none")
        if row["trained_tokens/agent"]:
            assert row["logp_gap/agent/p50"] < 1e-4 or row["lag/agent/max"]
