"""No model-written code runs outside the sandbox's child: nothing else can execute text."""

import ast
import pathlib

import pytest

import spade_jax

PACKAGE = pathlib.Path(spade_jax.__file__).parent
FORBIDDEN_NAMES = {"exec", "eval", "compile", "__import__"}
BUILTINS = {"builtins", "__builtins__"}
FORBIDDEN_MODULES = {"importlib", "runpy", "code", "codeop", "pickle", "marshal", "shelve", "imp"}
FORBIDDEN_ATTRIBUTES = {
    "exec", "eval", "__import__", "import_module", "exec_module", "module_from_spec",
    "spec_from_file_location", "spec_from_loader",
}  # fmt: skip
ALLOWED_IMPORTS = {"importlib.metadata", "importlib.resources", "importlib.util"}
# The child runs environments.
EXEMPT = {"sandbox/child.py": FORBIDDEN_NAMES}


def violations(source: str) -> set[str]:
    """Every way in which a module could run text as code."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
            found.add(node.attr)
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_NAMES:
            # compile is also a method of patterns and of jitted functions
            if isinstance(node.value, ast.Name) and node.value.id in BUILTINS:
                found.add(node.attr)
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names} - ALLOWED_IMPORTS
            found |= {name for name in names if name.split(".")[0] in FORBIDDEN_MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            allowed = ALLOWED_IMPORTS | {"importlib.util.find_spec", "importlib", "importlib.util"}
            if node.module in BUILTINS:
                found |= {alias.name for alias in node.names} & FORBIDDEN_NAMES
            if node.module.split(".")[0] in FORBIDDEN_MODULES and not names <= allowed:
                found.add(node.module)
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_no_module_executes_text(path):
    allowed = EXEMPT.get(path.relative_to(PACKAGE).as_posix(), set())
    assert violations(path.read_text()) <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "exec(text)",
        "f = eval",
        "import builtins; builtins.exec(text)",
        "compile(text, '', 'exec')",
        "import builtins; builtins.compile(text, '', 'exec')",
        "from builtins import compile as translate",
        "__import__('os')",
        "import importlib",
        "import importlib.util; importlib.util.spec_from_file_location('x', path)",
        "import importlib.util; importlib.util.module_from_spec(spec)",
        "from importlib import import_module",
        "from importlib.util import spec_from_file_location",
        "import pickle",
        "from runpy import run_path",
    ],
)
def test_the_search_finds(source):
    assert violations(source)


@pytest.mark.parametrize(
    "source",
    [
        "import re; re.compile('x')",
        "from importlib import metadata",
        "from importlib.util import find_spec",
        "jitted.lower(x).compile()",
        "import importlib.metadata",
        "import importlib.util; importlib.util.find_spec('gguf')",
    ],
)
def test_the_search_lets_pass(source):
    assert not violations(source)
