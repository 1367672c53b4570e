"""The benchmarks there are."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from spade_jax.benchmarks import published, reasoning_gym
from spade_jax.benchmarks.aime import AIME
from spade_jax.benchmarks.bfcl import BFCLMultiTurn
from spade_jax.benchmarks.gpqa import GPQADiamond
from spade_jax.benchmarks.interface import Benchmark
from spade_jax.benchmarks.livecodebench import LiveCodeBench
from spade_jax.config import ConfigError

BENCHMARKS: dict[str, Callable[[Path], Benchmark]] = {
    "aime_2025": functools.partial(AIME, 2025),
    "aime_2026": functools.partial(AIME, 2026),
    "gpqa_diamond": GPQADiamond,
    "livecodebench_v6": LiveCodeBench,
    "reasoning_gym_hard": lambda _: reasoning_gym.hard(),
    "reasoning_gym_dev": lambda _: reasoning_gym.development(),
    "bfcl_multi_turn": lambda _: BFCLMultiTurn(),
}
"""Name -> what makes it, given the folder of data that users bring."""
GROUPS = {
    table: [name for name in published.names(table) if name in BENCHMARKS]
    for table in published.TABLES
}
"""A table of the paper -> those of its benchmarks that there are here."""


def find(names: Sequence[str], data: Path) -> list[Benchmark]:
    """The benchmarks of these names, of benchmarks or groups.

    Args:
      data: folder with files of the benchmarks that need some.

    Raises:
      ConfigError: there is no such benchmark, or none was named.
    """
    wanted = [each for name in names for each in GROUPS.get(name, [name])]
    if not wanted or any(name not in BENCHMARKS for name in wanted):
        known = ", ".join([*BENCHMARKS, *GROUPS])
        raise ConfigError(f"--benchmarks={','.join(names)}: there are {known}; name one or more")
    return [BENCHMARKS[name](data) for name in dict.fromkeys(wanted)]
