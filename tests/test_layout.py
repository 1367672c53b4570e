"""The shape of the code: arrows go down, files stay short, the learner knows no roles."""

import ast
from pathlib import Path

import spade_jax

ROOT = Path(spade_jax.__file__).parent

# A package may import those of lower rank and itself. Entry points and warm_start stand on top.
RANK = {
    "config_tree": -2,
    "config_rules": -1,
    "config": 0,
    "cache": 0,
    "sandbox": 1,
    "models": 1,
    "data": 1,
    "environments": 2,
    "sampling": 2,
    "learner": 2,
    "selfplay": 3,
    "warm_start": 4,
    "benchmarks": 4,
}
TOP = 5
FORBIDDEN = {"environments", "sandbox", "selfplay"}  # to the learner and the models
LIMIT = 500


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_arrows_go_down():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).with_suffix("").parts
        rank = RANK.get(own[0].removesuffix(".py"), TOP)
        for name in imported(path):
            parts = name.split(".")
            if parts[0] != "spade_jax" or len(parts) < 2 or parts[1] == own[0]:
                continue
            if rank < TOP and RANK.get(parts[1], TOP) >= rank:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_selfplay_knows_no_jax():
    for path in (ROOT / "selfplay").rglob("*.py"):
        roots = {name.split(".")[0] for name in imported(path)}
        assert not roots & {"jax", "flax", "optax", "orbax"}, path


def test_learner_and_models_know_no_environment():
    for folder in ("learner", "models"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            for name in imported(path):
                assert not {"environments", "sandbox", "selfplay"} & set(name.split(".")), (
                    path,
                    name,
                )
            for role in ('"agent"', '"designer"', "'agent'", "'designer'"):
                assert role not in text, (path, role)


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert {path: n for path, n in lengths.items() if n > LIMIT} == {}
    ordered = sorted(lengths.values())
    assert ordered[len(ordered) // 2] <= 150
