"""A pool made of runs: read back it is what the runs had, evenly by skill and without repeats."""

import hashlib
import json
import subprocess
import sys

from spade_jax import collect
from spade_jax.environments import pools, similarity

PROGRAMS = pools.read(pools.LAPTOP).programs


def test_a_pool_out_of_two_runs(tmp_path):
    for run, programs in (("first", PROGRAMS[:24]), ("second", PROGRAMS[20:40])):
        for i, program in enumerate(programs):
            folder = tmp_path / run / "environments" / f"{i:05d}"
            folder.mkdir(parents=True)
            (folder / "source.py").write_text(program.source)
            facts = {"skill": program.skill, "sha": program.sha}
            (folder / "environment.json").write_text(json.dumps(facts))
    command = [sys.executable, "-m", "spade_jax.collect", tmp_path / "first", tmp_path / "second",
               f"--out={tmp_path / 'pool.parquet'}", "--per_skill=5"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "of 44 environments" in done.stdout
    pool = pools.read(str(tmp_path / "pool.parquet"))
    assert pool.bad_rows == pools.distinct(pool).bad_rows == ()
    given = {program.sha: program.skill for program in PROGRAMS[:40]}
    for program in pool.programs:
        assert given[program.sha] == program.skill
        assert program.sha == hashlib.sha256(program.source.encode()).hexdigest()
    skills = [program.skill for program in pool.programs]
    assert all(skills.count(skill) == 5 for skill in set(skills))
    assert set(skills) == {program.skill for program in PROGRAMS[:40]}


def test_alike_programs_are_taken_once():
    """Against every pair, the slow way."""
    some = PROGRAMS[:40]
    chosen = collect.select(some, per_skill=40, alike=0.5)
    kept = [
        program
        for i, program in enumerate(some)
        if not any(similarity.similarity(program.source, o.source) >= 0.5 for o in some[:i])
    ]
    assert sorted(program.sha for program in chosen) == sorted(program.sha for program in kept)
    assert 0 < len(kept) < len(some)
