"""LiveCodeBench's own grading of one program, in a process that ends with it.

The wheel's ``run_test`` executes the program, so nothing else is ever asked of the same process
(``Workers(once=True)``), which is confined. The package's other modules, which need half the
ecosystem, are not imported.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import types
import unittest.mock
from typing import Any

import numpy as np

from spade_jax.benchmarks.livecodebench_tests import tests_of
from spade_jax.sandbox import prelude, worker

PRELOADED = (*prelude.LOADED, np.linalg, shutil, subprocess, unittest.mock)
"""What programs and the grader import: a confined process can open no file."""


def grade(program: str, public: str, private: str, name: str | None, timeout: int) -> str:
    """The official verdict on a program: '' if it passes every test, else why it does not.

    Args:
      public, private: fields of the row.
      name: of the function that functional problems call; None for those on standard input.
      timeout: seconds of each test.
    """
    tests = tests_of(public) + tests_of(private)
    sample = {
        "inputs": [test["input"] for test in tests],
        "outputs": [test["output"] for test in tests],
        "fn_name": name,
    }
    results, facts = RUN_TEST({"input_output": json.dumps(sample)}, program, timeout=timeout)
    # What a program returns decides what `==` gives: only truth itself is taken for it.
    if len(results) == len(tests) and all(type(r) in (bool, np.bool_) and r for r in results):
        return ""
    return str(facts.get("error_message", "wrong"))[:200]


def official() -> Any:
    """The wheel's ``run_test``; its package's ``__init__`` is left out."""
    spec = importlib.util.find_spec("livecodebench")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = types.ModuleType("livecodebench.evaluation")
    package.__path__ = [f"{spec.submodule_search_locations[0]}/evaluation"]
    sys.modules[package.__name__] = package
    from livecodebench.evaluation.testing_util import run_test

    return run_test


if __name__ == "__main__":
    RUN_TEST = official()
    worker.serve({"grade": grade, "ready": bool}, programs=True)
