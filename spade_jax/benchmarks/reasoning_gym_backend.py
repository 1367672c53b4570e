"""Reasoning-Gym's generators and scorers, in processes of their own.

``python -m spade_jax.benchmarks.reasoning_gym_backend SEED INDICES TASKS`` prints an item a line;
as a worker (without arguments) it scores answers. An item is a literal of Python, because scorers
look into tuples that JSON would turn into lists.

Some scorers evaluate an answer as Python or through sympy. What reaches those is restricted to
formulas, and to literals without calls or attributes (:func:`harmless`); the worker is confined
besides.
"""

import ast
import collections
import contextlib
import io
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import reasoning_gym

from spade_jax.benchmarks.interface import WON
from spade_jax.benchmarks.reasoning_gym_tasks import HARD, TASKS
from spade_jax.sandbox import worker

SIZE = 500  # items of a task, of which some are asked
LIMIT = 60  # seconds
FORMULAS = {
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
}
LITERALS = {"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"}
FUNCTIONS = {
    *("sqrt", "exp", "log", "ln", "pi", "Abs", "sin", "cos", "tan", "sec", "csc", "cot"),
    *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "Integral"),
}


def generate(seed: int, indices: Sequence[int], tasks: Sequence[str]) -> Iterator[dict[str, Any]]:
    """``task``, ``index``, ``question``, ``entry`` (a literal) and ``gold`` of every item.

    ``empty`` and ``constant``: whether no answer is right, and whether the gold answer is that is
    the most common one among the task's other items. Of an item that cannot be made in ``LIMIT``
    seconds of processor time there are ``task`` and ``index`` alone.
    """
    for task in tasks:
        options = HARD[TASKS[task]][task]
        dataset = reasoning_gym.create_dataset(task, seed=seed, size=SIZE, **options)
        entries = {index: _made(dataset, index) for index in indices}
        for index in indices:
            entry = entries[index]
            if entry is None:
                yield {"task": task, "index": index}
                continue
            literal = repr(entry)
            assert ast.literal_eval(literal) == entry
            others = [entry["answer"] for n, entry in entries.items() if n != index and entry]
            constant = collections.Counter(others).most_common(1)[0][0] if others else ""
            yield {
                "task": task,
                "index": index,
                "question": entry["question"],
                "entry": literal,
                "gold": entry["answer"],
                "empty": _right(dataset, "", entry),
                "constant": _right(dataset, constant, entry),
            }


def _made(dataset: Any, index: int) -> dict[str, Any] | None:
    """An item; None if making it takes too long.

    A number sequence may grow until one multiplication does not end, which no signal handler
    interrupts: so a child makes it, and the kernel ends that.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as file:
            file.write(repr(_plain(dataset[index])))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as file:
        literal = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return None
    return ast.literal_eval(literal)


def score(task: str, entry: str, answer: str) -> tuple[float, str]:
    """The package's score of an answer, in [0, 1], and why it has none: 'form', 'raised', ''."""
    if not harmless(task, answer):
        return 0.0, "form"
    try:
        return _score(DATASETS[task], answer, ast.literal_eval(entry)), ""
    except Exception as error:
        return 0.0, f"raised {type(error).__name__}"


def harmless(task: str, answer: str) -> bool:
    """Whether evaluating the answer, where the task's scorer does, can only compute a value."""
    if task in FORMULAS:
        words = set(re.findall(r"[^\W\d]\w*", answer))
        return (
            re.fullmatch(r"[A-Za-z0-9\s+\-*/^().,=|]*", answer) is not None
            and re.search(r"\.\s*[A-Za-z]", answer) is None
            and all(len(word) == 1 or word in FUNCTIONS for word in words)
        )
    if task in LITERALS:
        return "(" not in answer and re.search(r"\.\s*[^\W\d]", answer) is None
    return True


def _right(dataset: Any, answer: str | None, entry: dict[str, Any]) -> bool:
    try:
        return _score(dataset, answer, entry) >= WON
    except Exception:  # some scorers raise on what they cannot read
        return False


def _score(dataset: Any, answer: str | None, entry: dict[str, Any]) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        return float(dataset.score_answer(answer, entry))


def _plain(value: Any) -> Any:
    """The same with Python's own types in the place of numpy's."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


if __name__ == "__main__":
    if len(sys.argv) > 1:
        seed, indices, tasks = sys.argv[1:]
        for item in generate(int(seed), json.loads(indices), json.loads(tasks)):
            print(json.dumps(item), flush=True)
    else:
        DATASETS = {
            task: reasoning_gym.create_dataset(task, seed=0, size=1, **options)
            for tasks in HARD.values()
            for task, options in tasks.items()
        }
        for task in FORMULAS:  # sympy imports more when it is used, and a worker can open no file
            dataset = DATASETS[task]
            _score(dataset, dataset[0]["answer"], dataset[0])
        worker.serve({"score": score})
