"""The row that an iteration adds to ``metrics.jsonl``. docs/metrics.md lists the names.

Only names under ``time/`` depend on the clock; all others are equal in a resumed run.
"""

import collections
import math
import statistics
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.selfplay import payment
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.designer import Attempt
from spade_jax.selfplay.ledger import Arm, Ledger
from spade_jax.selfplay.rewards import Averages
from spade_jax.selfplay.state import Environment, Invalid
from spade_jax.selfplay.variance import seed_share

ARMS: tuple[Arm, ...] = typing.get_args(Arm)


class Row:
    """Collects the values of one iteration, phase by phase."""

    def __init__(self, iteration: int):
        self.values: dict[str, Any] = {"iteration": iteration}
        self._tokens: dict[str, int] = {}

    def design(
        self,
        slots: int,
        attempts: Sequence[Attempt],
        written: Sequence[Environment],
        hint_tokens: int,
    ) -> None:
        """The writing of a set, or of what it lacked."""
        outcomes = collections.Counter(attempt.outcome for attempt in attempts)
        self.values["designer/slots"] = slots
        self.values["designer/accepted"] = len(written)
        self.values["designer/attempts"] = len(attempts)
        self.values["designer/validity"] = outcomes["accepted"] / max(1, len(attempts))
        reports = [attempt.report for attempt in attempts if attempt.report is not None]
        for name in dict.fromkeys(check.name for report in reports for check in report.checks):
            statuses = [report[name].status for report in reports]
            if asked := sum(status in ("passed", "failed", "unproven") for status in statuses):
                self.values[f"checks/{name}"] = statuses.count("passed") / asked
        hints = [item.hint for item in written if item.hint is not None]
        self.values["hints/written"] = len(hints)
        if hints:
            self.values["hints/words"] = statistics.fmean(len(hint.split()) for hint in hints)
        self.values["hints/leaking"] = sum(item.hint_leaks is True for item in written)
        for outcome, count in sorted(outcomes.items()):
            if outcome != "accepted":
                self.values[f"refused/{outcome}"] = count
        self._tokens["hint"] = hint_tokens
        self._tokens["design"] = sum(
            sum(attempt.sample.trained) for attempt in attempts if attempt.sample
        )

    def drawn(self, passes: int) -> None:
        """A set that was drawn from a pool."""
        self.values["pool/passes"] = passes

    def windows(self, windows: Sequence[tuple[int, int]]) -> None:
        """Levels of all tasks: the least and the greatest of each."""
        self.values["tasks/low"] = statistics.fmean(low for low, _ in windows)
        self.values["tasks/high"] = statistics.fmean(high for _, high in windows)
        self.values["tasks/highest"] = max(high for _, high in windows)

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
        for arm in ARMS:
            played = [episode for episode in episodes if episode.arm == arm]
            if arm == "placebo" and not played:
                continue
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
        self._regrets([item for item in environments if item.written == iteration], ledger)
        share = seed_share([_returns_by_arm(item.sha, iteration, ledger) for item in environments])
        if share is not None:
            self.values["returns/seed_share"] = share
        self._tokens["play"] = sum(
            sum(sample.trained) for episode in episodes for sample in episode.samples
        )

    def _regrets(self, environments: Sequence[Environment], ledger: Ledger) -> None:
        """Regret by arm, over environments in their first iteration."""
        regrets = {
            item.sha: value
            for item in environments
            if (value := payment.regret(item, ledger)) is not None
        }
        if not regrets:
            return
        self.values["regret/mean"] = statistics.fmean(regrets.values())
        self.values["regret/max"] = max(regrets.values())
        errors = [payment.regret_error(item, ledger) for item in environments]
        known = [error for error in errors if error is not None]
        if known:
            self.values["regret/error"] = math.sqrt(statistics.fmean(e**2 for e in known))
        placebos = {
            item.sha: value
            for item in environments
            if item.sha in regrets
            and (value := payment.regret(item, ledger, "placebo")) is not None
        }
        if placebos:
            self.values["regret/placebo"] = statistics.fmean(placebos.values())
            self.values["regret/beside_placebo"] = statistics.fmean(
                regrets[sha] for sha in placebos
            )

    def designer(
        self,
        due: Sequence[Environment | Invalid],
        paid: Sequence[float | None],
        averages: Mapping[str, Averages],
        settings: config.Rewards,
    ) -> None:
        """What the designer was paid; an invalid program's 0 is counted apart."""
        rewards = [
            reward
            for item, reward in zip(due, paid, strict=True)
            if reward is not None and isinstance(item, Environment)
        ]
        if rewards:
            self.values["designer/reward"] = statistics.fmean(rewards)
            self.values["designer/reward_std"] = statistics.pstdev(rewards)
        if due:
            self.values["designer/penalised"] = sum(isinstance(item, Invalid) for item in due)
        for skill in sorted({item.skill for item in due} & averages.keys()):
            potential = averages[skill].potential(settings.fast_rate, settings.slow_rate)
            self.values[f"potential/{skill}"] = potential

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


def _returns_by_arm(
    environment: str, iteration: int, ledger: Ledger
) -> list[dict[int, list[float]]]:
    """For each arm that was played, seed -> returns."""
    arms = []
    for arm in ARMS:
        by_seed = collections.defaultdict(list)
        for play in ledger.plays(environment, arm, iteration):
            by_seed[play.seed].append(play.episode_return)
        if by_seed:
            arms.append(dict(by_seed))
    return arms
