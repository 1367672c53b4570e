"""The benchmarks there are."""

from collections.abc import Callable, Sequence
from pathlib import Path

from spade_jax.benchmarks import published, reasoning_gym
from spade_jax.benchmarks.acebench import ACEBenchAgent
from spade_jax.benchmarks.aime import AIME
from spade_jax.benchmarks.bfcl import BFCLMultiTurn
from spade_jax.benchmarks.gpqa import GPQADiamond
from spade_jax.benchmarks.interface import Benchmark
from spade_jax.benchmarks.livecodebench import LiveCodeBench
from spade_jax.benchmarks.tau2 import Tau2
from spade_jax.benchmarks.user import SELF, User
from spade_jax.config import ConfigError

BENCHMARKS: dict[str, Callable[[Path, User], Benchmark]] = {
    "aime_2025": lambda data, _: AIME(2025, data),
    "aime_2026": lambda data, _: AIME(2026, data),
    "gpqa_diamond": lambda data, _: GPQADiamond(data),
    "livecodebench_v6": lambda data, _: LiveCodeBench(data),
    "reasoning_gym_hard": lambda *_: reasoning_gym.hard(),
    "reasoning_gym_dev": lambda *_: reasoning_gym.development(),
    "bfcl_multi_turn": lambda *_: BFCLMultiTurn(),
    "tau2": lambda _, user: Tau2(user),
    "acebench_agent": ACEBenchAgent,
}
"""Name -> what makes it, given the folder of data that users bring and who plays the user."""
GROUPS = {
    table: [name for name in published.names(table) if name in BENCHMARKS]
    for table in published.TABLES
}
"""A table of the paper -> those of its benchmarks that there are here."""


def find(names: Sequence[str], data: Path, user: User = SELF) -> list[Benchmark]:
    """The benchmarks of these names, of benchmarks or groups.

    Args:
      data: folder with files of the benchmarks that need some.
      user: who plays the user in those that have one.

    Raises:
      ConfigError: there is no such benchmark, or none was named.
    """
    wanted = [each for name in names for each in GROUPS.get(name, [name])]
    if not wanted or any(name not in BENCHMARKS for name in wanted):
        known = ", ".join([*BENCHMARKS, *GROUPS])
        raise ConfigError(f"--benchmarks={','.join(names)}: there are {known}; name one or more")
    return [BENCHMARKS[name](data, user) for name in dict.fromkeys(wanted)]
