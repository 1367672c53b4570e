"""The recipes of the images: nothing to find fault with, and what a role imports is in its own."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from fake_cloud import LAUNCH

HADOLINT = Path(sys.executable).with_name("hadolint")
RECIPES = sorted((LAUNCH / "containers").glob("*.Dockerfile"))
PACKAGE = LAUNCH.parent / "spade_jax"


def test_each_role_has_a_recipe():
    [first, more] = re.findall(r"roles[+]?=\((\w+)\)", (LAUNCH / "gke" / "build.sh").read_text())[
        :2
    ]
    roles = {path.name.removesuffix(".Dockerfile") for path in RECIPES}
    assert {first, more} <= roles == {"trainer", "sglang", "sandbox"}


@pytest.mark.parametrize("config", ["games", "tools"])
def test_the_slice_has_what_reads_the_corpus_of_its_config(config):
    source = runpy.run_path(LAUNCH.parent / "configs" / f"{config}.py")["get_config"](
        "30b"
    ).corpus.source
    assert source.startswith("tfds:")
    for installer in ("host/setup.sh", "containers/trainer.Dockerfile"):
        [extras] = re.findall(r"'\.\[([a-z,]+)\]'", (LAUNCH / installer).read_text())
        assert {"tpu", "tfds"} <= set(extras.split(","))


def test_hadolint_is_silent():
    done = subprocess.run([HADOLINT, *RECIPES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def at_import(tree):
    """Names that are imported when the module is: neither in functions nor for type checkers."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            waiting += ast.iter_child_nodes(node)


def foreign(module, seen):
    """Packages beyond the standard library that a module of ours needs, and those it imports."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in seen or not path.exists():
        return set()
    seen.add(module)
    found = foreign(module.rpartition(".")[0], seen) if "." in module else set()
    for name, part in at_import(ast.parse(path.read_text())):
        if name.partition(".")[0] == "spade_jax":
            found |= foreign(name, seen) | (foreign(f"{name}.{part}", seen) if part else set())
        elif name.partition(".")[0] not in sys.stdlib_module_names:
            found.add(name.partition(".")[0])
    return found


def test_a_sandbox_host_has_what_it_imports_and_little_else():
    recipe = (LAUNCH / "containers" / "sandbox.Dockerfile").read_text()
    installed = set(re.findall(r"'([a-z_]+)[\[>=]", recipe))
    seen = set()
    needed = set().union(*(
        foreign(f"spade_jax.sandbox.{path.stem}", seen)
        for path in (PACKAGE / "sandbox").glob("*.py")
    ))  # fmt: skip
    assert {"spade_jax.sandbox.host", "spade_jax.sandbox.zygote"} <= seen
    assert needed <= installed
    assert installed - needed <= {"ray", "ml_collections"}
