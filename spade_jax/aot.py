"""Programs compiled for a TPU topology that is not there, and what they would hold."""

import importlib.util
import re
from typing import Any

import jax
from jax.experimental import topologies

from spade_jax.chips import CHIPS, Chip


class CompileError(RuntimeError):
    """What cannot be compiled for the topology: says why and what to change."""


def devices(topology: str) -> tuple[Chip, Any]:
    """The chip and the devices of ``v5p:2x2x2``.

    Raises:
      CompileError: no libtpu, or a topology it does not know.
    """
    kind = topology.partition(":")[0]
    if kind not in CHIPS:
        raise CompileError(
            f"--topology={topology}: {kind!r} is not one of {', '.join(CHIPS)}; write v5p:2x2x2"
        )
    if importlib.util.find_spec("libtpu") is None:
        raise CompileError("libtpu is not installed: pip install 'spade-jax[aot]'")
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except (RuntimeError, ValueError, jax.errors.JaxRuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CompileError(f"--topology={topology}: libtpu does not know it ({reason})") from error
    return CHIPS[kind], described.devices


def compiled(lowered: jax.stages.Lowered, name: str, remedy: str) -> jax.stages.Compiled:
    """The program.

    Raises:
      CompileError: it does not fit the memory; says by how much, and the remedy.
    """
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            raise
        excess = re.search(r"Exceeded hbm capacity by ([\d.]+\w)", text)
        by = f" by {excess.group(1)}iB a device" if excess else ""
        raise CompileError(f"{name} does not fit{by}: {remedy}") from error


def memory(program: jax.stages.Compiled, resident: int) -> dict[str, int]:
    """Bytes a device holds while the program runs, by kind; ``resident`` lie there beside it."""
    stats: Any = program.memory_analysis()
    kinds = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes - stats.alias_size_in_bytes,
        "temporary": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
        "resident": resident,
    }
    host = stats.host_argument_size_in_bytes + stats.host_temp_size_in_bytes
    return kinds | {"total": sum(kinds.values()), "host": host}


def collective_seconds(exposed: Any, chip: Chip) -> float:
    """Of those that nothing overlaps, at the speed of one ring of links.

    ``exposed``: as :attr:`spade_jax.hlo.Cost.exposed`.
    """
    seconds = 0.0
    for (kind, group), size in exposed.items():
        passes = 2 if kind == "all-reduce" else 1
        seconds += passes * size * (group - 1) / group / chip.ici_bandwidth
    return seconds
