"""The level window of a task that gets harder as it is mastered (RLVE's sliding window)."""

import dataclasses

from spade_jax import config

SOLVED = 1 - 1e-6


@dataclasses.dataclass
class Window:
    """Levels that are played, and what has been seen at the top one since it last moved.

    Attributes:
      low, high: the least and the greatest level.
      attempts, wins: plays at level ``high``, and how many of them were solved.
    """

    low: int = 0
    high: int = 0
    attempts: int = 0
    wins: int = 0

    def played(self, level: int, wins: int, attempts: int, rule: config.Tasks) -> None:
        """Counts plays; after enough at the top level, the window moves up or counts anew."""
        if level != self.high:
            return
        self.wins += wins
        self.attempts += attempts
        if self.attempts < rule.attempts:
            return
        if self.wins >= rule.success * self.attempts and self.high < rule.cap:
            self.high += 1
            self.low = max(self.low, self.high - rule.width + 1)
        self.attempts = self.wins = 0
