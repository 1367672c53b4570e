"""Pools are read from where they lie; what is not to be trusted is named, not dropped silently."""

import hashlib
import json

import pyarrow
import pyarrow.parquet
import pytest

from spade_jax import config
from spade_jax.data import rows
from spade_jax.environments import examples, pools

SOURCES = [(examples.__path__[0], name) for name in ("clue_lock", "grid_walk", "number_guessing")]


def sources():
    return [open(f"{folder}/{name}.py").read() for folder, name in SOURCES]


def published_rows():
    """Three good ones in the published columns, and one for everything that can be wrong."""
    good = [
        {"game_id": i, "file_name": f"game_{i}.py", "skill": skill, "code": code,
         "sha256": hashlib.sha256(code.encode()).hexdigest()}
        for i, (skill, code) in enumerate(
            zip(["Optimization", "spatial_reasoning", "Haggling"], sources(), strict=True))
    ]  # fmt: skip
    changed = good[0] | {"code": good[0]["code"] + "# changed\n"}
    return [*good, changed, good[1], good[2] | {"code": None}]


def check(pool, file):
    assert [item.source for item in pool.programs] == [*sources(), sources()[1]]
    skills = [item.skill for item in pool.programs]
    assert skills[:3] == ["Optimization", "Spatial Reasoning", "Haggling"]
    assert pool.programs[0].name == f"{file}:1 game_0.py"
    assert {row.name.split(" ")[0] for row in pool.bad_rows} == {f"{file}:4", f"{file}:6"}
    assert "SHA-256" in pool.bad_rows[0].reason
    assert "no string in 'code'" in pool.bad_rows[1].reason


def test_a_data_set_is_checked_against_its_checksums(tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(published_rows()), tmp_path / "pool.parquet"
    )
    pool = pools.read(str(tmp_path / "pool.parquet"))
    check(pool, "pool.parquet")
    lines = [json.dumps(row) + "\n" for row in published_rows()]
    (tmp_path / "pool.jsonl").write_text("".join(lines) + '{no json\n{"code": "\\ud800"}\n')
    other = pools.read(str(tmp_path / "pool.jsonl"))
    assert [row.name for row in other.bad_rows[-2:]] == ["pool.jsonl:7", "pool.jsonl:8"]
    check(pools.Pool(other.programs, other.bad_rows[:-2]), "pool.jsonl")
    assert other.digest == pool.digest
    assert pools.told(other.bad_rows, shown=1).startswith("4 bad rows: pool.jsonl:4 game_0.py (its")


def test_a_program_twice_is_a_bad_row(tmp_path):
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in published_rows()))
    pool = pools.distinct(pools.read(str(path)))
    assert [item.source for item in pool.programs] == sources()
    assert pool.bad_rows[-1].name == "pool.jsonl:5 game_1.py"
    assert pool.bad_rows[-1].reason == "the same program as pool.jsonl:2 game_1.py"


def test_a_run_is_a_pool(tmp_path):
    """Skill and checksum stand beside the source; without them the name tells the skill."""
    facts = [("Optimization", None), ("Pattern Recognition", "0" * 64)]
    for i, (skill, sha) in enumerate(facts):
        folder = tmp_path / f"0000{i}"
        folder.mkdir()
        (folder / "source.py").write_text(sources()[i])
        sha = sha or hashlib.sha256(sources()[i].encode()).hexdigest()
        (folder / "environment.json").write_text(json.dumps({"skill": skill, "sha": sha}))
    (tmp_path / "game_00001_multi_step_workflows.py").write_text(sources()[2])
    (tmp_path / "latin.py").write_bytes(b"\xe9")
    (tmp_path / "plain.py").write_text("pass\n")
    pool = pools.read(str(tmp_path))
    assert {item.name: item.skill for item in pool.programs} == {
        "00000/source.py": "Optimization",
        "game_00001_multi_step_workflows.py": "Multi-Step Workflows",
        "plain.py": pools.UNKNOWN,
    }
    assert {row.name: row.reason.split()[0] for row in pool.bad_rows} == {
        "00001/source.py": "its",
        "latin.py": "not",
    }


def test_a_data_set_of_the_hub_is_read_from_its_cache(tmp_path, monkeypatch):
    """The cache is laid out as huggingface_hub does; nothing is fetched."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "datasets--someone--pool"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    table = pyarrow.Table.from_pylist(published_rows())
    pyarrow.parquet.write_table(table, snapshot / "train-00000.parquet")
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        _with(__import__("huggingface_hub").snapshot_download, cache_dir=tmp_path),
    )
    check(pools.read("hf:someone/pool"), "train-00000.parquet")
    with pytest.raises(rows.SourceError, match=r"hf:someone/other.*name a data set of the hub"):
        pools.read("hf:someone/other")


def _with(function, **fixed):
    return lambda *args, **named: function(*args, **named, **fixed)


def test_a_pool_without_programs_is_named(tmp_path):
    with pytest.raises(rows.SourceError, match=r"no \.py file"):
        pools.read(str(tmp_path))
    with pytest.raises(rows.SourceError, match="no such file"):
        pools.read(str(tmp_path / "pool.parquet"))


def test_the_packaged_pool_is_whole():
    pool = pools.distinct(pools.read(pools.LAPTOP))
    assert pool.bad_rows == ()
    assert len(pool.programs) >= 60
    assert {item.skill for item in pool.programs} == set(config.GAME_SKILLS)
