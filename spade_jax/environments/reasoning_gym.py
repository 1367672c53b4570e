"""Tasks out of the package ``reasoning-gym``, whose parameters rise with the level.

No task has, at any level, the parameters of the benchmark (``benchmarks/reasoning_gym.py``), nor a
seed that any of its items depends on. No scorer here evaluates an answer as code, and no generator
reads a file: a confined process can open none.
"""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import reasoning_gym

from spade_jax.environments import tasks

FIRST_SEED = 10_000  # the benchmark's items are drawn from lower ones
Parameters = dict[str, Any]


def _exactly(**values: float) -> Parameters:
    """Least and most of each are the same."""
    return {f"{end}_{name}": value for name, value in values.items() for end in ("min", "max")}


LEVELS: dict[str, Callable[[int], Parameters]] = {
    "base_conversion": lambda n: {"max_base": 3 + n // 2, "max_value": 20 * (n + 1) ** 2},
    "basic_arithmetic": lambda n: _exactly(terms=2 + n // 3, digits=1 + n // 5),
    "binary_alternation": lambda n: _exactly(n=6 + 6 * n),
    "chain_sum": lambda n: _exactly(terms=2 + n // 2, digits=1 + n // 4),
    "circuit_logic": lambda n: _exactly(terms=2 + n // 4, inputs=2 + n // 4),
    "complex_arithmetic": lambda n: {
        "min_real": -2 - 3 * n,
        "max_real": 2 + 3 * n,
        "min_imag": -2 - 3 * n,
        "max_imag": 2 + 3 * n,
    },
    "count_bits": lambda n: {"max_n": 2 ** (4 + 2 * n)},
    "count_primes": lambda n: {"max_n": 20 * (n + 1) ** 2},
    "course_schedule": lambda n: _exactly(num_courses=5 + 2 * n),
    "decimal_chain_sum": lambda n: _exactly(
        terms=2 + n // 4, digits=1 + n // 5, decimal_places=1 + n // 6
    ),
    "fraction_simplification": lambda n: {"max_value": 10 * (n + 1), "max_factor": 2 + 2 * n},
    "gcd": lambda n: _exactly(numbers=2 + n // 8) | {"max_value": 20 * (n + 1) ** 2},
    "isomorphic_strings": lambda n: _exactly(string_length=2 + 3 * n),
    "lcm": lambda n: _exactly(numbers=2 + n // 10) | {"max_value": 10 * (n + 1)},
    "leg_counting": lambda n: _exactly(animals=2 + n) | {"max_instances": 3 + 3 * n},
    "mini_sudoku": lambda n: _exactly(empty=2 + n // 2),
    "number_filtering": lambda n: _exactly(numbers=3 + 2 * n),
    "number_sorting": lambda n: _exactly(numbers=3 + 2 * n),
    "palindrome_generation": lambda n: _exactly(length=3 + 4 * n),
    "prime_factorization": lambda n: {"max_value": 20 * (n + 1) ** 2},
    "products": lambda n: _exactly(terms=2 + n // 10, digits=1 + n // 4),
    "ransom_note": lambda n: _exactly(note_length=2 + 3 * n, magazine_length=4 + 6 * n),
    "rotate_matrix": lambda n: _exactly(n=2 + n, rotations=1 + n // 2),
    "shortest_path": lambda n: _exactly(rows=3 + n, cols=3 + n),
    "simple_equations": lambda n: _exactly(terms=2 + n // 4) | {"max_value": 5 * (n + 1)},
    "string_manipulation": lambda n: _exactly(string_length=5 + 2 * n),
    "sudoku": lambda n: _exactly(empty=5 + 2 * n),
}
"""Name -> the package's parameters at a level."""


class Generator:
    """One of the package's data sets as a :class:`tasks.Task`."""

    def __init__(self, name: str):
        self.name = name
        self._judge = reasoning_gym.create_dataset(name, seed=0, size=1)

    def problem(self, level: int, seed: int) -> tuple[str, str]:
        """The question, and its whole item as a literal of Python."""
        options = LEVELS[self.name](level)
        first = FIRST_SEED + seed % (1 << 31)
        item = reasoning_gym.create_dataset(self.name, seed=first, size=1, **options)[0]
        literal = repr(_plain(item))
        ast.literal_eval(literal)  # raises where it is none
        return item["question"], literal

    def right(self, answer: str, truth: str) -> bool:
        """By the package's scorer."""
        return self._judge.score_answer(answer, ast.literal_eval(truth)) >= 1 - 1e-6


def _plain(value: Any) -> Any:
    """The same with Python's own types in the place of numpy's."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    generators = [Generator(name) for name in LEVELS]
    for generator in generators:  # imports what a confined process could not
        generator.problem(0, 0)
    tasks.serve(generators)
