"""docs/metrics.md is the list of names: what a run writes stands there."""

import asyncio
import re
from pathlib import Path

from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import manifest
from spade_jax.selfplay.records import Records

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


# What only the real learner, SGLang servers, tools, pools and procedural tasks write, and what only
# placebos, many plays of a seed and weights that travel do.
ELSEWHERE = {"importance", "logp_gap", "entropy", "loss", "grad_norm", "trained_tokens", "kl",
             "ratio_clipped", "tokens", "sampler", "weights", "calls", "pool", "tasks"}  # fmt: skip
UNUSUAL = {"episodes/placebo", "returns/placebo", "regret/placebo", "regret/beside_placebo",
           "returns/seed_share", "time/weights_write", "time/weights_load"}  # fmt: skip


def documented():
    """Names of the page's tables as patterns: capitals stand for any part of a name."""
    patterns, last = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
                last = name.replace("…", last.rpartition("/")[0])
                patterns.append(re.sub(r"[A-Z]{3,}", r"[^/]+", last))
    return patterns


def test_every_metric_is_documented_and_play_is_in_the_manifest(make_cycle, settings, tmp_path):
    async def go():
        async with EnvironmentHost(settings.sandbox) as host:
            cycle = make_cycle(host, settings)
            rows = [await cycle.run_iteration() for _ in range(3)]
            for row in rows:
                cycle._records.metrics(row)
            return rows

    rows = asyncio.run(go())
    patterns = documented()
    written = {name for row in rows for name in row}
    unknown = {name for name in written if not any(re.fullmatch(p, name) for p in patterns)}
    assert not unknown
    idle = {p for p in patterns if not any(re.fullmatch(p, name) for name in written)}
    assert {p for p in idle if p.split("/")[0] not in ELSEWHERE} == UNUSUAL
    check_manifest(tmp_path, rows)


def check_manifest(workdir, rows):
    """Its tables tell the same story as the metrics."""
    tables = {name: manifest.read(workdir, name).to_pylist() for name in manifest.SCHEMAS}
    written = [row for row in rows if "designer/attempts" in row]
    assert len(tables["attempts"]) == sum(row["designer/attempts"] for row in written)
    environments = {item["sha"]: item for item in tables["environments"]}
    assert len(environments) == sum(row["environments/accepted"] for row in written)
    accepted = {a["sha"] for a in tables["attempts"] if a["outcome"] == "accepted"}
    assert accepted == environments.keys()
    for row in rows:
        plain = [
            play["return"]
            for play in tables["plays"]
            if play["iteration"] == row["iteration"] and play["arm"] == "plain"
        ]
        assert sum(plain) / len(plain) == row["returns/plain"]
    first = [item for item in environments.values() if item["written"] == 0]
    trained = {item["sha"]: item for item in tables["designers"]}
    assert trained.keys() == {item["sha"] for item in first}
    rewards = [item["reward"] for item in trained.values()]
    assert sum(rewards) / len(rewards) == rows[2]["designer/reward"]
    for sha, item in trained.items():
        returns = [p["return"] for p in tables["plays"] if (p["sha"], p["arm"]) == (sha, "plain")]
        assert item["win_rate"] == sum(returns) / len(returns)
        assert item["trained"] == 2
        assert item["advantage"] is not None


def test_a_resume_forgets_all_that_is_repeated_and_nothing_else(tmp_path):
    """Also what was evaluated with policies that will not be the same again."""
    records = Records(tmp_path)
    names = ["episodes/00001", "episodes/00002", "episodes/.nfs01", "evaluation/initial",
             "evaluation/step-2", "evaluation/step-3"]  # fmt: skip
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    records.drop_from(2)
    left = [name for name in names if (tmp_path / name).exists()]
    assert left == ["episodes/00001", "episodes/.nfs01", "evaluation/initial", "evaluation/step-2"]


def test_a_manifest_is_read_as_it_was_written_and_forgets_what_is_repeated(tmp_path):
    tables = manifest.Manifest(tmp_path / "manifest")
    for iteration in range(3):
        tables.add("designers", sha=f"s{iteration}", trained=iteration, reward=0.5)
        tables.flush(iteration)
    tables.drop_from(2)
    tables.add("designers", sha="again", trained=1, reward=None)
    tables.add("designers", sha="ahead", trained=2, reward=None)
    tables.flush(1)
    assert manifest.read(tmp_path, "designers").to_pylist() == [
        {"sha": "s0", "trained": 0, "win_rate": None, "regret": None, "reward": 0.5,
         "advantage": None},
        {"sha": "again", "trained": 1, "win_rate": None, "regret": None, "reward": None,
         "advantage": None},
    ]  # fmt: skip
    assert manifest.read(tmp_path, "plays").num_rows == 0
