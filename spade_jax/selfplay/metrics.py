"""The row that an iteration adds to ``metrics.jsonl``. docs/metrics.md lists the names.

Only names under ``time/`` depend on the clock; all others are equal in a resumed run.
"""

import collections
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.learner.packing import Trajectory
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.designer import Attempt
from spade_jax.selfplay.ledger import Ledger
from spade_jax.selfplay.rewards import regret
from spade_jax.selfplay.state import Environment


class Row:
    """Collects the values of one iteration, phase by phase."""

    def __init__(self, iteration: int):
        self.values: dict[str, Any] = {"iteration": iteration}
        self._tokens: dict[str, int] = {}

    def design(
        self, attempts: Sequence[Attempt], written: Sequence[Environment], hint_tokens: int
    ) -> None:
        outcomes = collections.Counter(attempt.outcome for attempt in attempts)
        self.values["designer/attempts"] = len(attempts)
        self.values["designer/validity"] = outcomes["accepted"] / max(1, len(attempts))
        self.values["hints/written"] = sum(item.hint is not None for item in written)
        for outcome, count in sorted(outcomes.items()):
            if outcome != "accepted":
                self.values[f"refused/{outcome}"] = count
        self._tokens["hint"] = hint_tokens
        self._tokens["design"] = sum(
            sum(attempt.sample.trained) for attempt in attempts if attempt.sample
        )

    def play(
        self,
        slots: int,
        environments: Sequence[Environment],
        episodes: Sequence[Episode],
        ledger: Ledger,
    ) -> None:
        iteration = self.values["iteration"]
        self.values["environments/asked"] = slots
        self.values["environments/accepted"] = len(environments)
        for arm in ("plain", "hinted"):
            played = [episode for episode in episodes if episode.arm == arm]
            scored = [episode.episode_return for episode in played if episode.scored]
            self.values[f"episodes/{arm}"] = len(scored)
            self.values[f"episodes/{arm}_dropped"] = len(played) - len(scored)
            if scored:
                self.values[f"returns/{arm}"] = statistics.fmean(scored)
        statuses = collections.Counter(episode.status for episode in episodes)
        for status, count in sorted(statuses.items()):
            self.values[f"episodes/{status}"] = count
        plain = [ledger.returns(item.sha, "plain", iteration) for item in environments]
        rates = [statistics.fmean(returns) for returns in plain if returns]
        self.values["environments/mixed"] = sum(len(set(returns)) > 1 for returns in plain)
        self.values["environments/learnable"] = sum(0.2 <= rate <= 0.8 for rate in rates)
        regrets = [
            value
            for item in environments
            if (value := _regret(item.sha, iteration, ledger)) is not None
        ]
        if regrets:
            self.values["regret/mean"] = statistics.fmean(regrets)
            self.values["regret/max"] = max(regrets)
        self._tokens["play"] = sum(
            sum(sample.trained) for episode in episodes for sample in episode.samples
        )

    def designer(self, paid: Sequence[float | None]) -> None:
        rewards = [reward for reward in paid if reward is not None]
        if rewards:
            self.values["designer/reward"] = statistics.fmean(rewards)
            self.values["designer/reward_std"] = statistics.pstdev(rewards)

    def batch(self, agent: Sequence[Trajectory], designer: Sequence[Trajectory]) -> None:
        self.values["agent/trained"] = len(agent)
        self.values["designer/trained"] = len(designer)
        self._tokens["learn"] = sum(len(item.tokens) for item in [*agent, *designer])

    def learner(self, values: Mapping[str, float]) -> None:
        self.values.update(values)

    def time(self, seconds: Mapping[str, float]) -> None:
        """Seconds of each phase, and its tokens per second: sampled ones, or packed in 'learn'."""
        for phase, spent in seconds.items():
            self.values[f"time/{phase}"] = spent
            if phase in self._tokens:
                self.values[f"tokens/{phase}"] = self._tokens[phase]
                self.values[f"time/{phase}_tokens_per_second"] = self._tokens[phase] / spent


def _regret(environment: str, iteration: int, ledger: Ledger) -> float | None:
    return regret(
        ledger.seed_means(environment, "plain", iteration),
        ledger.seed_means(environment, "hinted", iteration),
    )
