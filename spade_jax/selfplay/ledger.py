"""The table of returns: the only source for rewards, memory, metrics and reports."""

import collections
import dataclasses
import typing
from collections.abc import Iterable

Arm = typing.Literal["plain", "hinted", "placebo"]


@dataclasses.dataclass(frozen=True)
class Play:
    """One scored episode. ``episode_return`` lies in [-1, 1]."""

    environment: str
    iteration: int
    arm: Arm
    seed: int
    episode_return: float


class Ledger:
    """Environment × iteration × arm × seed → return, in the order of playing."""

    def __init__(self, plays: Iterable[Play] = ()):
        self._plays: dict[str, list[Play]] = collections.defaultdict(list)
        for play in plays:
            self.add(play)

    def add(self, play: Play) -> None:
        self._plays[play.environment].append(play)

    def plays(
        self, environment: str, arm: Arm = "plain", iteration: int | None = None
    ) -> list[Play]:
        """Plays of one environment in one arm, of one iteration or of all."""
        return [
            play
            for play in self._plays.get(environment, ())
            if play.arm == arm and iteration in (None, play.iteration)
        ]

    def returns(
        self, environment: str, arm: Arm = "plain", iteration: int | None = None
    ) -> list[float]:
        return [play.episode_return for play in self.plays(environment, arm, iteration)]

    def seed_means(self, environment: str, arm: Arm, iteration: int) -> dict[int, float]:
        """Mean return on each seed that the arm played in the iteration."""
        by_seed = collections.defaultdict(list)
        for play in self.plays(environment, arm, iteration):
            by_seed[play.seed].append(play.episode_return)
        return {seed: sum(values) / len(values) for seed, values in by_seed.items()}

    def keep(self, environments: Iterable[str]) -> None:
        """Forgets every other environment: its reward has been paid."""
        wanted = set(environments)
        for environment in [name for name in self._plays if name not in wanted]:
            del self._plays[environment]

    def to_json(self) -> list[dict]:
        return [dataclasses.asdict(play) for plays in self._plays.values() for play in plays]

    @classmethod
    def from_json(cls, rows: Iterable[dict]) -> "Ledger":
        return cls(Play(**row) for row in rows)
