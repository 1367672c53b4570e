"""Past environments shown to the designer: what worked, and what was too easy or too hard."""

import dataclasses
import random
from collections.abc import Iterable

from spade_jax import config


@dataclasses.dataclass(frozen=True)
class Record:
    """One environment after its epoch. ``regret`` is None when it had no hint."""

    environment: str
    skill: str
    snippet: str
    win_rate: float
    regret: float | None


class Memory:
    """First in, first out, at most ``settings.capacity`` records."""

    def __init__(self, settings: config.Memory, records: Iterable[Record] = ()):
        self.settings = settings
        self.records = list(records)

    def add(self, record: Record) -> None:
        snippet = record.snippet[: self.settings.snippet]
        self.records.append(dataclasses.replace(record, snippet=snippet))
        del self.records[: max(0, len(self.records) - self.settings.capacity)]

    def exemplars(self, skill: str, rng: random.Random) -> list[Record]:
        """Well-calibrated environments of the skill, drawn from those of highest regret."""
        low, high = self.settings.low, self.settings.high
        fitting = [
            record
            for record in self.records
            if record.skill == skill and low <= record.win_rate <= high
        ]
        fitting.sort(key=lambda record: -(record.regret if record.regret is not None else 0.0))
        pool = fitting[: max(3 * self.settings.exemplars, self.settings.top)]
        return rng.sample(pool, min(self.settings.exemplars, len(pool)))

    def avoid(self, skill: str, rng: random.Random) -> list[Record]:
        """Environments of the skill that nearly everyone wins (> 0.9) or loses (< 0.1)."""
        pool = [
            record
            for record in self.records
            if record.skill == skill and not 0.1 <= record.win_rate <= 0.9
        ]
        return rng.sample(pool, min(self.settings.avoid, len(pool)))

    def to_json(self) -> list[dict]:
        return [dataclasses.asdict(record) for record in self.records]
