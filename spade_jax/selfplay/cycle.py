"""One iteration of SPADE, readable from top to bottom.

Every k iterations the designer writes a new environment set and a hint for each environment; in
every iteration the agent plays the set; the designer is paid ``delay`` iterations after it wrote;
one optimizer step follows. See docs/method.md.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from spade_jax import config
from spade_jax.data.corpus import Document
from spade_jax.learner.packing import Trajectory
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import batch, diagnostics, metrics, rewards, schedule
from spade_jax.selfplay.agent import Agent, Episode
from spade_jax.selfplay.designer import Designer, Slot
from spade_jax.selfplay.hints import write_hints
from spade_jax.selfplay.ledger import Play
from spade_jax.selfplay.memory import Record
from spade_jax.selfplay.records import Records
from spade_jax.selfplay.state import Environment, State


class Learner(Protocol):
    """What the cycle needs of the learner."""

    params: Any

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]: ...


class Progress(Protocol):
    """Where the cycle says what it is doing."""

    def phase(self, name: str, total: int) -> None: ...

    def advance(self) -> None: ...


class Cycle:
    """The loop's body. All that it remembers between iterations is ``state``."""

    def __init__(
        self,
        settings: config.Config,
        state: State,
        learner: Learner,
        sampler: Sampler,
        host: EnvironmentHost,
        renderer: Renderer,
        corpus: Iterator[Document] | None,
        records: Records,
        progress: Progress,
    ):
        self.settings = settings
        self.state = state
        self._learner = learner
        self._sampler = sampler
        self._host = host
        self._renderer = renderer
        self._corpus = corpus
        self._records = records
        self._progress = progress
        self._designer = Designer(sampler, host, renderer, settings)
        self._agent = Agent(sampler, host, renderer, settings.agent, settings.designer.prompts)
        self._seconds: dict[str, float] = {}

    async def run_iteration(self) -> dict[str, Any]:
        """Runs iteration ``state.iteration``, advances the state and returns the metrics row."""
        state, iteration = self.state, self.state.iteration
        row = metrics.Row(iteration)
        self._seconds = {}

        if schedule.starts_epoch(iteration, self.settings.schedule.k):
            self._remember()
            await self._new_environments(row)

        episodes = await self._play()
        self._enter(episodes)
        row.play(self.settings.schedule.slots, state.environments, episodes, state.ledger)
        row.values.update(diagnostics.of_play(episodes) | diagnostics.of_arms(episodes))

        due = self._due()
        paid = [self._pay(environment) for environment in due]
        designed = batch.designer_trajectories(due, paid, episodes, self.settings)
        played = batch.agent_trajectories(episodes, self.settings)
        self._record_designers(due, paid, designed)
        row.designer(paid)
        row.batch(played, designed)
        row.values.update(diagnostics.of_batch(played, designed))

        with self._phase("learn", 1):
            row.learner(self._learner.update([*designed, *played]))
        with self._phase("weights", 1):
            self._sampler.update(self._learner.params, iteration + 1)

        state.parked = [item for item in state.parked if item not in due]
        alive = {item.sha for item in [*state.environments, *state.parked]}
        state.ledger.keep(alive)
        state.faulty &= alive
        state.iteration += 1
        row.time(self._seconds)
        return row.values

    def _remember(self) -> None:
        """Enters the set whose epoch is over into memory."""
        ledger = self.state.ledger
        for environment in self.state.environments:
            if returns := ledger.returns(environment.sha):
                self.state.memory.add(
                    Record(
                        environment.sha,
                        environment.skill,
                        environment.source,
                        sum(returns) / len(returns),
                        self._regret(environment),
                    )
                )

    async def _new_environments(self, row: metrics.Row) -> None:
        """Designer, validation, hints: the set that the coming k iterations play."""
        plan, iteration = self.settings.schedule, self.state.iteration
        skills = schedule.active_skills(iteration, plan.k, plan.skills, plan.active_skills)
        slots = [Slot(index, skills[index % len(skills)]) for index in range(plan.slots)]
        documents = [
            next(self._corpus) if self._corpus else None
            for _ in range(plan.slots * self.settings.designer.attempts)
        ]
        memory = self.state.memory
        with self._phase("design", plan.slots):
            written, attempts = await self._designer.write(slots, iteration, documents, memory)
        with self._phase("hint", len(written)):
            written, hint_tokens = await write_hints(
                written,
                self._sampler,
                self._renderer,
                self.settings.hints,
                self.settings.designer.prompts,
                self.settings.sampler.context,
            )
        self.state.environments = written
        if self.settings.designer.trained:
            self.state.parked += written
        by_slot = {environment.slot: environment for environment in written}
        for attempt in attempts:
            if attempt.outcome == "accepted":
                self._records.environment(by_slot[attempt.slot.index], attempt)
            else:
                self._records.rejection(iteration, attempt)
        row.design(attempts, written, hint_tokens)

    async def _play(self) -> list[Episode]:
        """Both arms on the same seeds, in an order that tells an environment nothing."""
        plan, iteration = self.settings.schedule, self.state.iteration
        first = schedule.starts_epoch(iteration, plan.k)
        episodes = []
        for environment in self.state.environments:
            seeds = schedule.play_seeds(
                self.settings.seed, environment.sha, iteration, plan.plain_plays
            )
            for play, seed in enumerate(seeds):
                episodes.append(Episode(environment, iteration, "plain", seed, play))
            if first and environment.hint is not None:
                for play, seed in enumerate(schedule.hinted_seeds(seeds, plan.hinted_plays)):
                    episodes.append(Episode(environment, iteration, "hinted", seed, play))
        order = random.Random(schedule.derive_seed(self.settings.seed, "order", iteration))
        order.shuffle(episodes)
        with self._phase("play", len(episodes)):
            # In lots, because an episode that waited for a free instance while others wait for it
            # at the sampler would wait for ever.
            for start in range(0, len(episodes), self.settings.sandbox.instances):
                lot = episodes[start : start + self.settings.sandbox.instances]
                await asyncio.gather(*(self._play_one(episode) for episode in lot))
        for episode in episodes:
            self._records.episode(episode)
        return episodes

    async def _play_one(self, episode: Episode) -> None:
        await self._agent.play(episode)
        self._progress.advance()

    def _enter(self, episodes: Sequence[Episode]) -> None:
        """Scored episodes go into the ledger; an environment that misbehaved is marked."""
        for episode in episodes:
            if episode.scored:
                self.state.ledger.add(
                    Play(
                        episode.environment.sha,
                        episode.iteration,
                        episode.arm,
                        episode.seed,
                        episode.episode_return,
                    )
                )
            elif episode.status == "environment_fault":
                self.state.faulty.add(episode.environment.sha)

    def _due(self) -> list[Environment]:
        """Environments whose designer is trained now; in the last iteration, all that are left."""
        iteration, delay = self.state.iteration, self.settings.schedule.delay
        last = iteration == self.settings.iterations - 1
        return [item for item in self.state.parked if last or item.written + delay <= iteration]

    def _pay(self, environment: Environment) -> float | None:
        """The designer's reward; None when nobody could play the environment."""
        if environment.sha in self.state.faulty:
            return 0.0
        returns = self.state.ledger.returns(environment.sha)
        if not returns:
            return None
        win_rate = sum(returns) / len(returns)
        return rewards.designer_reward(win_rate, self._regret(environment), self.settings.rewards)

    def _record_designers(
        self,
        due: Sequence[Environment],
        paid: Sequence[float | None],
        designed: Sequence[Trajectory],
    ) -> None:
        """``designed``: a trajectory for each of ``due`` that was paid, in their order."""
        trained = iter(designed)
        for environment, reward in zip(due, paid, strict=True):
            returns = self.state.ledger.returns(environment.sha)
            self._records.designer(
                self.state.iteration,
                environment,
                win_rate=sum(returns) / len(returns) if returns else None,
                regret=self._regret(environment),
                reward=reward,
                advantage=None if reward is None else next(trained).advantage,
            )

    def _regret(self, environment: Environment) -> float | None:
        ledger = self.state.ledger
        plain = ledger.seed_means(environment.sha, "plain", environment.written)
        hinted = ledger.seed_means(environment.sha, "hinted", environment.written)
        return rewards.regret(plain, hinted)

    @contextlib.contextmanager
    def _phase(self, name: str, total: int) -> Iterator[None]:
        self._progress.phase(name, total)
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = time.monotonic() - started
