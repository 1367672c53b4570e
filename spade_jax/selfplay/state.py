"""All that a resume must carry, besides the learner's arrays and the corpus position."""

import copy
import dataclasses
from typing import Any

from spade_jax import config
from spade_jax.selfplay.ledger import Ledger
from spade_jax.selfplay.memory import Memory, Record
from spade_jax.selfplay.rewards import Averages


@dataclasses.dataclass(frozen=True)
class Sample:
    """Token ids of one trajectory; ``trained``, ``logp`` and ``versions`` are aligned to them.

    ``logp`` is the sampler's, 0 where the token was not sampled; ``versions`` are the weights that
    sampled it, -1 where none did (empty: nobody knows). ``experts`` are those that its tokens were
    given, where the sampler records them (:mod:`spade_jax.sampling.experts`).
    """

    tokens: list[int]
    trained: list[bool]
    logp: list[float]
    versions: list[int] = dataclasses.field(default_factory=list)
    experts: str = ""


@dataclasses.dataclass(frozen=True)
class Environment:
    """An accepted environment and how it came about.

    Attributes:
      sha: SHA-256 of the source: its identity everywhere.
      name: readable name of its folder in the run directory.
      written: iteration in which it was written.
      sample: the designer's trajectory that wrote it; empty where it comes from a pool.
      hint: None when there is none to use; the environment is then without regret.
      hint_leaks: whether the hint as written contained a solution; None = unknown.
      origin: its name in the pool it comes from.
      placebo: as many words out of hints for other environments, where that arm is played.
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
    hint_leaks: bool | None = None
    placebo: str | None = None
    origin: str = ""


@dataclasses.dataclass(frozen=True)
class Invalid:
    """A refused program whose writing is trained all the same, with reward 0."""

    skill: str
    written: int
    sample: Sample


@dataclasses.dataclass
class State:
    """What the next iteration depends on.

    Attributes:
      iteration: the next one to run.
      environments: the set in play.
      parked: what the designer has written and not been trained on yet, oldest first.
      faulty: environments that misbehaved while being played.
      averages: of each skill that the designer has been paid for.
      supply: what the supply of environments remembers, as JSON; empty for the designer.
    """

    iteration: int
    environments: list[Environment]
    parked: list[Environment | Invalid]
    faulty: set[str]
    ledger: Ledger
    memory: Memory
    averages: dict[str, Averages]
    supply: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def fresh(cls, settings: config.Memory) -> "State":
        return cls(0, [], [], set(), Ledger(), Memory(settings), {})

    def to_json(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "environments": [dataclasses.asdict(item) for item in self.environments],
            "parked": [dataclasses.asdict(item) for item in self.parked],
            "faulty": sorted(self.faulty),
            "ledger": self.ledger.to_json(),
            "memory": self.memory.to_json(),
            "averages": {skill: dataclasses.asdict(item) for skill, item in self.averages.items()},
            "supply": copy.deepcopy(self.supply),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], settings: config.Memory) -> "State":
        return cls(
            iteration=data["iteration"],
            environments=[_environment(row) for row in data["environments"]],
            parked=[
                _environment(row) if "sha" in row else Invalid(**_with_sample(row))
                for row in data["parked"]
            ],
            faulty=set(data["faulty"]),
            ledger=Ledger.from_json(data["ledger"]),
            memory=Memory(settings, (Record(**row) for row in data["memory"])),
            averages={skill: Averages(**row) for skill, row in data["averages"].items()},
            supply=data["supply"],
        )


def _environment(row: dict[str, Any]) -> Environment:
    return Environment(**_with_sample(row))


def _with_sample(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "sample": Sample(**row["sample"])}
