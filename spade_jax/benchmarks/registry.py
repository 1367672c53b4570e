"""The benchmarks there are."""

from collections.abc import Callable, Sequence

from spade_jax.benchmarks.bfcl import BFCLMultiTurn
from spade_jax.benchmarks.interface import Benchmark
from spade_jax.config import ConfigError

BENCHMARKS: dict[str, Callable[[], Benchmark]] = {BFCLMultiTurn.name: BFCLMultiTurn}


def find(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names.

    Raises:
      ConfigError: there is no such benchmark, or none was named.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        known = ", ".join(BENCHMARKS)
        raise ConfigError(f"--benchmarks={','.join(names)}: there are {known}; name one or more")
    return [BENCHMARKS[name]() for name in dict.fromkeys(names)]
