"""What an optimised XLA program does, read from its text: loops multiplied by their trip counts."""

import collections
import dataclasses
import functools
import math
import re

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
)
_FUSING = ("fusion", "async-start", "reduce", "reduce-window", "sort", "scatter", "map")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8}
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|body|condition|to_apply|async_execution_thread_calls)=%([\w.-]+)")
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=(%[\w.-]+))")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_NO_ESTIMATE = 2**63 - 1
"""Stands for the cycles of a scatter that goes to the SparseCore, such as that of the few indices
by which the backward pass of megablox finds its groups."""
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\])")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Instruction:
    name: str
    shape: str
    kind: str
    rest: str

    @property
    def bytes(self) -> int:
        """Of the result, or of the largest array if it is a tuple."""
        return max((_array_bytes(*array) for array in _ARRAY.findall(self.shape)), default=0)

    @property
    def elements(self) -> int:
        """Of the largest array of the result."""
        return max(
            (_elements(dimensions) for _, dimensions in _ARRAY.findall(self.shape)), default=0
        )

    @property
    def cycles(self) -> int:
        """The compiler's estimate; one an element where it has none (see :data:`_NO_ESTIMATE`)."""
        found = _CYCLES.search(self.rest)
        cycles = int(found.group(1)) if found else 0
        return self.elements if cycles == _NO_ESTIMATE else cycles


@dataclasses.dataclass(frozen=True)
class Program:
    """Instructions of each computation, and the name of the first."""

    computations: dict[str, list[Instruction]]
    entry: str

    @classmethod
    def parse(cls, text: str) -> "Program":
        """From ``compiled.as_text()``."""
        computations: dict[str, list[Instruction]] = {}
        entry = ""
        here: list[Instruction] | None = None
        for line in text.splitlines():
            if start := _COMPUTATION.match(line):
                here = computations.setdefault(start.group(2), [])
                entry = start.group(2) if start.group(1) else entry
            elif here is not None and (found := _INSTRUCTION.match(line)):
                here.append(Instruction(*found.groups()[1:]))
        if not entry:
            raise ValueError("this text has no ENTRY computation: it is no optimised HLO program")
        return cls(computations, entry)

    def cost(self, data_dependent_trips: int) -> "Cost":
        """Cycles and collectives of one run.

        Args:
          data_dependent_trips: turns of a loop whose end is not in the program (the head's, which
            stops after the last trained token).
        """
        return _cost(self, self.entry, data_dependent_trips, False)

    def largest(self, kind: str) -> int:
        """Bytes of the largest result of instructions of a kind, starts of it included; else 0."""
        every = (i for instructions in self.computations.values() for i in instructions)
        return max((i.bytes for i in every if i.kind.removesuffix("-start") == kind), default=0)

    def arrays(self) -> set[tuple[int, ...]]:
        """Shapes of all results, on one device."""
        every = (i for instructions in self.computations.values() for i in instructions)
        found = (_ARRAY.findall(i.shape) for i in every)
        return {tuple(int(n) for n in a.split(",") if n) for array in found for _, a in array}

    def trips(self, loop: Instruction, data_dependent: int) -> int:
        """Turns of a ``while``: the constant its counter is compared with."""
        condition = self.computations[_called(loop.rest, "condition")]
        constants = {
            i.name: int(i.rest.split(")")[0])
            for i in condition
            if i.kind == "constant" and i.rest.split(")")[0].lstrip("-").isdigit()
        }
        for instruction in condition:
            if instruction.kind in ("compare", "fusion"):
                for operand in re.findall(r"%([\w.-]+)", instruction.rest.split(")")[0]):
                    if operand in constants:
                        return constants[operand]
        return data_dependent


@dataclasses.dataclass
class Cost:
    """Of one run of a program, on one device.

    Attributes:
      cycles: the compiler's own estimate for what it fused itself.
      bytes: by collective, of the larger of input and output.
      exposed: by collective and number of participants, bytes of those that the program waits
        for; the others run beside a fusion or between a start and a done.
      kernels: calls of custom kernels, by name; their cycles are unknown to the compiler.
    """

    cycles: float = 0
    bytes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    exposed: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    kernels: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def add(self, other: "Cost", times: int) -> None:
        self.cycles += times * other.cycles
        for mine, theirs in (
            (self.bytes, other.bytes),
            (self.exposed, other.exposed),
            (self.kernels, other.kernels),
        ):
            for key, value in theirs.items():
                mine[key] += times * value


def _cost(program: Program, name: str, trips: int, fused: bool) -> Cost:
    """``fused``: the caller's cycles stand for those in here, and overlap with what is sent."""
    is_reduce_scatter = "all-reduce-scatter" in name  # how the TPU compiler writes one
    total = Cost()
    for instruction in program.computations[name]:
        if not fused:
            total.cycles += instruction.cycles
        if (kind := instruction.kind.removesuffix("-start")) in COLLECTIVES:
            size = max(instruction.bytes, _operand_bytes(program, name, instruction))
            blocks = kind == instruction.kind and (is_reduce_scatter or not fused)
            if kind == "all-reduce" and is_reduce_scatter:
                kind = "reduce-scatter"
            total.bytes[kind] += size
            if blocks:
                total.exposed[kind, _participants(instruction)] += size
        if instruction.kind == "custom-call" and 'target="tpu_custom_call"' in instruction.rest:
            total.kernels[instruction.name.split(".")[0]] += 1
        times = program.trips(instruction, trips) if instruction.kind == "while" else 1
        inside = fused or instruction.kind in _FUSING
        for called in _CALLED.findall(instruction.rest):
            total.add(_cost(program, called, trips, inside), times)
        if instruction.kind == "conditional":
            text = " ".join(map(" ".join, _BRANCHES.findall(instruction.rest)))
            names = re.findall(r"%([\w.-]+)", text)
            branches = [_cost(program, name, trips, inside) for name in names]
            total.add(max(branches, key=lambda branch: branch.cycles), 1)  # the step is made
    return total


def _called(text: str, attribute: str) -> str:
    found = re.search(rf"\b{attribute}=%([\w.-]+)", text)
    assert found is not None, f"a loop without {attribute}"
    return found.group(1)


def _operand_bytes(program: Program, name: str, instruction: Instruction) -> int:
    shapes = _shapes(tuple(program.computations[name]))
    operands = re.findall(r"%([\w.-]+)", instruction.rest.split(")")[0])
    return max((shapes.get(operand, 0) for operand in operands), default=0)


@functools.lru_cache(maxsize=4096)
def _shapes(instructions: tuple[Instruction, ...]) -> dict[str, int]:
    return {instruction.name: instruction.bytes for instruction in instructions}


def _participants(instruction: Instruction) -> int:
    """Devices of one group."""
    if found := _GROUPS.search(instruction.rest):
        listed, size = found.groups()
        return len(listed.split(",")) if listed else int(size)
    if found := _MESH_GROUPS.search(instruction.rest):
        axes, chosen = found.groups()
        sizes = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", axes)}
        return math.prod(sizes[axis] for axis in re.findall(r"'(\w+)'", chosen))
    return 2  # a permutation: each device sends to one


def _array_bytes(dtype: str, dimensions: str) -> int:
    return _BYTES.get(dtype, 4) * _elements(dimensions)


def _elements(dimensions: str) -> int:
    return math.prod(int(n) for n in dimensions.split(",") if n)
