"""A whole run of a tiny model on two SGLang servers that fail now and then."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sampling"))
from fake_sglang import FakeSGLang

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
