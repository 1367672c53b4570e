"""A whole run over eight devices is the run on one: what is sampled, paid and learnt."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("tiny_run.py")
MESHES = {
    "one": (),
    "eight": ("mesh.data=2", "mesh.fsdp=2", "mesh.context=2"),
}
EXACT = ("environments/", "agent/", "designer/", "returns/", "tokens/", "trained_tokens")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Run directories by mesh; the second iteration plays what the first has learnt."""
    parent = tmp_path_factory.mktemp("runs")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compile faster, run slower
    }
    for name, mesh in MESHES.items():
        command = [sys.executable, str(PROGRAM), str(parent / name)]
        command += ["--devices", "8" if mesh else "1"]
        command += ["--set", "iterations=2", "learner.rows=4", *mesh]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        assert "donated" not in done.stderr  # a refused donation doubles memory
    return {name: parent / name for name in MESHES}


def rows_of(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def test_metrics_equal_one_device(folders):
    one, eight = rows_of(folders["one"]), rows_of(folders["eight"])
    assert len(one) == len(eight) == 2
    assert one[0]["grad_norm/agent"] > 0
    for expected, actual in zip(one, eight, strict=True):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-6)
        for name in expected:
            if name.startswith(EXACT):
                assert actual[name] == expected[name], name


def test_the_same_is_said_and_won(folders):
    """Texts, returns and environments, also of the iteration after the update."""

    def texts(folder):
        return {
            str(file.relative_to(folder)): file.read_text()
            for kind in ("episodes", "environments")
            for file in sorted((folder / kind).rglob("*.*"))
        }

    expected = texts(folders["one"])
    assert {Path(name).parts[1] for name in expected if name.startswith("episodes")} == {
        "00000",
        "00001",
    }
    assert texts(folders["eight"]) == expected
