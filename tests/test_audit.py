"""A small pool with one environment for every kind of failure."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from spade_jax import audit
from spade_jax.environments import examples

EXAMPLES = Path(examples.__file__).parent
GUESSING = (EXAMPLES / "number_guessing.py").read_text()
WALK = (EXAMPLES / "grid_walk.py").read_text()
LOCK = (EXAMPLES / "clue_lock.py").read_text()

GIFT = '''
class GiftEnv:
    """Any message wins, on the first turn."""

    def __init__(self, max_turns=3):
        self.reset()

    def reset(self, seed=None):
        return "Say something.", {}

    def step(self, action):
        return "Thank you for " + str(len(action)), 1.0, True, False, {}

    def solution(self):
        return ["please"]
'''
POOL = {
    "guessing.py": GUESSING,
    "lock.py": LOCK,
    "walk.py": WALK,
    "again.py": "# The same once more.\n" + GUESSING,
    "chance.py": WALK.replace("random.Random(seed)", "random.Random()"),
    "gift.py": GIFT,
    "impossible.py": LOCK.replace("1.0, True", "0.5, True"),
    "broken.py": "class BrokenEnv(\n",
    "tools.py": "class ShopEnv(ToolUseBaseEnv):\n    pass\n",
    "our_tools.py": "class ShopEnv(ToolEnv):\n    pass\n",
    "__init__.py": "",
}
FAILURES = {
    "won at reset": {"gift.py"},
    "won by random play": {"gift.py"},
    "unsolvable": {"impossible.py"},
    "not deterministic": {"chance.py"},
    "fails parses": {"broken.py"},
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """What the command printed and wrote for the pool as a folder."""
    folder = tmp_path_factory.mktemp("pool")
    for name, source in POOL.items():
        (folder / name).write_text(source)
    return run(folder, folder.with_name("audit.json"))


def run(pool, out, *more):
    command = [sys.executable, "-m", "spade_jax.audit", str(pool), f"--json={out}", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(out.read_text())


def test_every_failure_is_found_and_counted(audited):
    printed, facts = audited
    assert "10 programs, 2 of them for tools (left out)" in printed
    assert "8 examined, 0 not" in printed
    found = {rate["failure"]: rate for rate in facts["rates"]}
    for failure, names in FAILURES.items():
        # A program left to chance may fail in other ways too.
        assert len(names) <= found[failure]["failed"] <= len(names | {"chance.py"}), failure
        assert failure in printed
    assert set(facts["programs"]) == POOL.keys() - {"tools.py", "our_tools.py", "__init__.py"}
    assert {n for n, o in facts["programs"].items() if o["presolved"] == "failed"} == {"gift.py"}
    assert {n for n, o in facts["programs"].items() if o["deterministic"] == "failed"} == {
        "chance.py"
    }


def test_duplicates_are_those_of_an_earlier_one(audited):
    _, facts = audited
    doubles = {n for n, o in facts["programs"].items() if o["duplicate"] == "failed"}
    # By name: again < guessing, chance < walk, impossible < lock.
    assert doubles == {"guessing.py", "walk.py", "lock.py"}


def test_what_was_not_asked_is_in_no_rate(audited):
    _, facts = audited
    asked = {rate["failure"]: rate["asked"] for rate in facts["rates"]}
    assert asked["fails parses"] == 8
    assert asked["not deterministic"] == 7  # broken.py was never played


def test_the_published_schema_gives_the_same(audited, tmp_path):
    table = [
        {"game_id": i, "file_name": name, "skill": "Optimization", "code": source}
        for i, (name, source) in enumerate(sorted(POOL.items()))
    ]
    path = tmp_path / "pool.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    _, facts = run(path, tmp_path / "audit.json", "--limit=3", "--seed=1")
    # A row is named by its place and, if it has one, its file.
    ours = {name.split()[-1]: outcome for name, outcome in facts["programs"].items()}
    assert len(ours) == 3
    for name, outcome in ours.items():
        expected = audited[1]["programs"][name]
        assert {k: v for k, v in outcome.items() if k != "duplicate"} == {
            k: v for k, v in expected.items() if k != "duplicate"
        }


@pytest.mark.parametrize(("failed", "asked"), [(0, 20), (3, 20), (20, 20), (1, 7000)])
def test_intervals_are_wilsons(failed, asked):
    """Against the closed form: E. B. Wilson, JASA 22 (1927)."""
    outcomes = [{"solvable": "failed"}] * failed + [{"solvable": "passed"}] * (asked - failed)
    (rate,) = audit.rates([*outcomes, {"solvable": "unproven"}, {"solvable": "skipped"}])
    z, p = 1.959963984540054, failed / asked
    centre = (p + z * z / (2 * asked)) / (1 + z * z / asked)
    half = z / (1 + z * z / asked) * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked**2))
    assert (rate.failed, rate.asked, rate.unproven) == (failed, asked, 1)
    assert rate.low == pytest.approx(centre - half, abs=1e-9)
    assert rate.high == pytest.approx(centre + half, abs=1e-9)
