"""Whole runs on the real SGLang server (CPU): the laptop's own, and one behind a faulty proxy.

Slow, like the server's start: tests/README.md.
"""

import json
import subprocess
import sys
from pathlib import Path

import conftest
import pytest
import tiny_run
from flax import nnx

from spade_jax.models import huggingface, loading

sys.path.insert(0, str(Path(__file__).parent / "sampling"))
from proxy_sglang import Proxy
from real_sglang import RealSGLang

ROOT = Path(__file__).parents[1]
FAULTS = {
    "/generate": [
        *("refused", "reset", "reset in the middle", "500", "503", "truncated", "missing fields"),
        *("duplicate", "restart", "aborted without log-probs", "hang", "trickle"),
    ],
    "/update_weights_from_disk": ["failed but loaded", "not advancing"],
}
KINDS = ("unreachable", "broken", "status", "json", "fields", "duplicate", "stale", "timeout",
         "update")  # fmt: skip


def rows_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, cwd=ROOT, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_laptops_run(tmp_path):
    """Its mixture of experts; the server's log-probs are the learner's. The server starts with
    the model of a first iteration on the native sampler."""
    command = ("-m", "spade_jax.train", "--config=configs/laptop.py")
    run(*command, f"--workdir={tmp_path / 'native'}", "--config.iterations=1")
    server = RealSGLang(tmp_path / "native/initial", tmp_path / "log")
    try:
        more = ("--config.sampler.kind=sglang", f"--config.sampler.urls={server.url}")
        printed = run(*command, f"--workdir={tmp_path / 'run'}", "--config.iterations=3", *more)
    finally:
        server.kill()
    assert "log-prob gap to the sampler" in printed
    rows = rows_of(tmp_path / "run")
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["trained_tokens/agent"] > 0
        assert row["logp_gap/agent/max"] < 1e-3
        assert row["sampler/faults"] == row["episodes/plain_dropped"] == 0


@pytest.mark.slow
def test_every_fault_once_in_three_iterations(tmp_path):
    tokenizer = conftest.make_byte_tokenizer()
    model, _ = loading.load(tiny_run.settings(urls="http://unused").model, 0)
    known = huggingface.with_tokens(model.config, tokenizer)
    huggingface.save(tmp_path / "initial", known, nnx.split(model)[1], tokenizer)
    server = RealSGLang(tmp_path / "initial", tmp_path / "log")
    proxy = Proxy(server.url, tmp_path / "initial")
    # The first calls are those with which a server is looked at; then one in four.
    proxy.faults["/generate"] += [None] * 12
    for fault in FAULTS["/generate"]:
        proxy.faults["/generate"] += [fault, None, None, None]
    for fault in FAULTS["/update_weights_from_disk"]:
        proxy.faults["/update_weights_from_disk"] += [None, fault]
    try:
        command = (ROOT / "tests/tiny_run.py", tmp_path / "run", "--urls", proxy.url)
        # So many plays that some are won: a run without any fails.
        run(*command, "--set", "sampler.timeout=15.0", "schedule.plain_plays=12")
    finally:
        proxy.close()
        server.kill()
    assert not any(proxy.faults["/generate"])
    assert not any(proxy.faults["/update_weights_from_disk"])
    rows = rows_of(tmp_path / "run")
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for kind in KINDS:
        assert sum(row.get(f"sampler/faults/{kind}", 0) for row in rows) >= 1, kind
    for row in rows:
        dropped = [value for name, value in row.items() if name.endswith("_dropped")]
        assert sum(dropped) == row["sampler/given_up"] == 0
        assert row["episodes/plain"] == 12 * row["environments/accepted"] > 0
        assert row["lag/agent/max"] == 0  # every token is of the weights that it says
        if row["trained_tokens/agent"]:
            assert row["logp_gap/agent/p50"] < 1e-4
