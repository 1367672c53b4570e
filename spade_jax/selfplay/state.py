"""All that a resume must carry, besides the learner's arrays and the corpus position."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from spade_jax import config
from spade_jax.selfplay.ledger import Ledger
from spade_jax.selfplay.memory import Memory, Record


@dataclasses.dataclass(frozen=True)
class Sample:
    """Token ids of one trajectory; ``trained`` and ``logp`` are aligned to them.

    ``logp`` is the sampler's, 0 where the token was not sampled.
    """

    tokens: list[int]
    trained: list[bool]
    logp: list[float]


@dataclasses.dataclass(frozen=True)
class Environment:
    """An accepted environment and how it came about.

    Attributes:
      sha: SHA-256 of the source: its identity everywhere.
      name: readable name of its folder in the run directory.
      written: iteration in which it was written.
      sample: the designer's trajectory that wrote it.
      hint: None when the hint call failed; the environment is then without regret.
    """

    sha: str
    name: str
    skill: str
    slot: int
    written: int
    source: str
    document: str
    exemplars: list[str]
    sample: Sample
    hint: str | None = None


@dataclasses.dataclass
class State:
    """What the next iteration depends on.

    Attributes:
      iteration: the next one to run.
      environments: the set in play.
      parked: environments whose designer has not been trained yet, oldest first.
      faulty: environments that misbehaved while being played; their designer earns 0.
    """

    iteration: int
    environments: list[Environment]
    parked: list[Environment]
    faulty: set[str]
    ledger: Ledger
    memory: Memory

    @classmethod
    def fresh(cls, settings: config.Memory) -> "State":
        return cls(0, [], [], set(), Ledger(), Memory(settings))

    def to_json(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "environments": [dataclasses.asdict(item) for item in self.environments],
            "parked": [dataclasses.asdict(item) for item in self.parked],
            "faulty": sorted(self.faulty),
            "ledger": self.ledger.to_json(),
            "memory": self.memory.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], settings: config.Memory) -> "State":
        return cls(
            iteration=data["iteration"],
            environments=_environments(data["environments"]),
            parked=_environments(data["parked"]),
            faulty=set(data["faulty"]),
            ledger=Ledger.from_json(data["ledger"]),
            memory=Memory(settings, (Record(**row) for row in data["memory"])),
        )


def _environments(rows: Iterable[dict]) -> list[Environment]:
    return [Environment(**{**row, "sample": Sample(**row["sample"])}) for row in rows]
