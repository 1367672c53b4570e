"""The main job as a user runs it: end to end, killed and continued, exported.

Uses the laptop's taught model; whoever has not run the main job before waits for the lesson once.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from spade_jax import export

SMALL = (
    "--config=configs/laptop.py",
    "--config.iterations=3",
    "--config.schedule.slots=6",
    "--config.schedule.plain_plays=4",
    "--config.schedule.hinted_plays=4",
)


def command(workdir, *more):
    return [sys.executable, "-m", "spade_jax.train", f"--workdir={workdir}", *SMALL, *more]


def run(workdir, *more):
    return subprocess.run(
        command(workdir, *more), capture_output=True, text=True, timeout=900, check=False
    )


def rows_of(workdir):
    path = workdir / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def without_time(rows):
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run: its directory and what it printed."""
    workdir = tmp_path_factory.mktemp("run") / "whole"
    done = run(workdir)
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir, done.stdout


def test_the_run_is_whole(finished):
    workdir, printed = finished
    rows = rows_of(workdir)
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["environments/accepted"] >= row["environments/asked"] / 2
        assert row["agent/trained"] > 0
        if row["trained_tokens/agent"]:  # else every environment was always won, or never
            assert row["importance/agent/mean"] == pytest.approx(1, abs=1e-3)
    assert any(row["grad_norm/agent"] > 0 for row in rows)
    # Iteration 2 trains those of iteration 0 and, as it is the last, all others: the top-ups of
    # iteration 1 and its own.
    accepted = sum(row.get("designer/accepted", 0) for row in rows)
    assert [row["designer/trained"] for row in rows] == [0, 0, accepted]
    for text in ("sandbox tier", "iteration 3/3", "environments asked for", "regret", "tokens/s"):
        assert text in printed, printed


def test_the_run_directory_can_be_read(finished):
    workdir, _ = finished
    rows = rows_of(workdir)
    folders = list((workdir / "environments").iterdir())
    assert len(folders) == sum(row.get("designer/accepted", 0) for row in rows)
    for folder in folders:
        facts = json.loads((folder / "environment.json").read_text())
        assert facts["hint"] == ((folder / "hint.txt").read_text() or None)
        assert "class " in (folder / "source.py").read_text()
        assert {"name", "status", "reason"} <= json.loads((folder / "checks.json").read_text())[
            0
        ].keys()
    episodes = [json.loads(p.read_text()) for p in workdir.glob("episodes/*/*.json")]
    scored = [e for e in episodes if e["return"] is not None]
    assert len(scored) == sum(r["episodes/plain"] + r["episodes/hinted"] for r in rows)
    assert {e["arm"] for e in scored} == {"plain", "hinted"}


def test_the_taught_agent_heeds_verdicts(finished):
    """Else self-play has nothing to start from: docs/laptop.md. By a coin it would be a half."""
    kept = []
    for path in finished[0].glob("episodes/*/*.json"):
        episode = json.loads(path.read_text())
        if episode["arm"] == "plain":
            for turn, following in itertools.pairwise(episode["turns"]):
                if turn["observation"].startswith("right, "):
                    negated = ["{not " in each["action"] for each in (turn, following)]
                    kept.append(negated[0] == negated[1])
    assert len(kept) > 20
    assert sum(kept) / len(kept) > 0.65


def test_the_same_command_again_changes_nothing(finished):
    workdir, _ = finished
    before = (workdir / "metrics.jsonl").read_bytes()
    again = run(workdir)
    assert again.returncode == 0, again.stdout + again.stderr
    assert (workdir / "metrics.jsonl").read_bytes() == before
    assert "environments asked for" in again.stdout


def test_other_settings_in_the_same_directory_are_refused(finished):
    workdir, _ = finished
    refused = run(workdir, "--config.learner.learning_rate=0.5")
    assert refused.returncode == 1
    assert "learner.learning_rate" in refused.stdout
    assert "0.5 asked for" in refused.stdout


def test_killed_and_continued_equals_unbroken(finished, tmp_path):
    whole, _ = finished
    workdir = tmp_path / "killed"
    victim = subprocess.Popen(
        command(workdir), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 600
    while len(rows_of(workdir)) < 2:
        assert victim.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    continued = run(workdir)
    assert continued.returncode == 0, continued.stdout + continued.stderr
    assert "continuing after iteration" in continued.stdout
    assert without_time(rows_of(workdir)) == without_time(rows_of(whole))
    ours, theirs = (export.of_run(place, None)[1] for place in (workdir, whole))
    for left, right in zip(leaves(ours), leaves(theirs), strict=True):
        np.testing.assert_array_equal(left, right)


def leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_the_export_is_the_trained_policy_for_transformers(finished, tmp_path):
    workdir, _ = finished
    out = tmp_path / "exported"
    subprocess.run(
        [sys.executable, "-m", "spade_jax.export", f"--workdir={workdir}", f"--out={out}"],
        check=True,
        timeout=300,
    )
    from flax import nnx

    from spade_jax import config, policy

    model_config, params, tokenizer = export.of_run(workdir, None)
    settings = config.from_config_dict(json.loads((workdir / "config.json").read_text()))
    initial, _ = policy.load(settings, workdir)
    graph, start = nnx.split(initial)
    model = nnx.merge(graph, params)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write Spatial Reasoning"}],
        add_generation_prompt=True,
        return_dict=False,
    )
    token_bt = np.array([ids])
    h_btd = model.hidden(token_bt, np.arange(len(ids))[None], np.ones_like(token_bt))
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
    np.testing.assert_allclose(h_btd @ model.head().T, expected, atol=1e-4)
    assert theirs.config.vocab_size == model_config.vocabulary
    moved = [float(abs(a - b).max()) for a, b in zip(leaves(params), leaves(start), strict=True)]
    assert max(moved) > 1e-6
    tensors = safetensors.numpy.load_file(next(out.glob("*.safetensors")))
    assert tensors["model.embed_tokens.weight"].shape[0] == model_config.vocabulary


def test_config_mistakes_end_with_one_message(tmp_path):
    for mistake, expected in (
        ("--config.learner.learning_rat=1.0", "did you mean config.learner.learning_rate"),
        ("--config.iterations=0", "config.iterations: must be at least 1"),
    ):
        failed = run(tmp_path / "none", mistake)
        assert failed.returncode != 0
        assert expected in failed.stdout + failed.stderr
        assert "Traceback" not in failed.stdout + failed.stderr
        assert not (tmp_path / "none").exists()
