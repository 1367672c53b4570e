"""One iteration of SPADE, readable from top to bottom.

Every k iterations the designer writes a new environment set and a hint for each environment (or,
in a baseline, the set comes from elsewhere: supply.py); in every iteration the agent plays the set;
the designer is paid ``delay`` iterations after it wrote; one optimizer step follows. See
docs/method.md. Several processes deal out slots, hints and episodes; everything else all of them do
alike. With ``schedule.overlap`` the next iteration is sampled while this one is learned from.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from spade_jax import config
from spade_jax.data.corpus import Document
from spade_jax.learner.packing import Trajectory
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import batch, diagnostics, metrics, payment, schedule
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.exchange import Alone, Exchange, all_results, dealt
from spade_jax.selfplay.ledger import Arm, Play
from spade_jax.selfplay.phases import Phases, Progress, Unseen
from spade_jax.selfplay.records import Recorder
from spade_jax.selfplay.setting import setting_of
from spade_jax.selfplay.state import Environment, Invalid, State
from spade_jax.selfplay.supply import Supply, Written

T = TypeVar("T")


class Learner(Protocol):
    """What the cycle needs of the learner."""

    params: Any

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]: ...


class Cycle:
    """The loop's body. All that must outlive an iteration is in ``state``."""

    def __init__(
        self,
        settings: config.Config,
        state: State,
        learner: Learner,
        sampler: Sampler,
        host: Host,
        renderer: Renderer,
        corpus: Iterator[Document] | None,
        records: Recorder,
        progress: Progress,
        exchange: Exchange | None = None,
        supply: Supply | None = None,
    ):
        """``supply``: where environment sets come from; None = the designer writes them."""
        self.settings = settings
        self.state = state
        self._learner = learner
        self._sampler = sampler
        self._records = records
        self._overlaps = settings.schedule.overlap == "next_iteration"
        self._phase = Phases(progress)
        self._learning = Phases(Unseen() if self._overlaps else progress)  # one bar, one phase
        self._ahead: asyncio.Task[tuple[metrics.Row, list[Episode]]] | None = None
        self._told = False  # to stop, while it waited for a step or for what is sampled ahead
        self.exchange = exchange or Alone()
        self._supply = supply or Written(
            settings, sampler, host, renderer, corpus, records, self._phase, self.exchange
        )
        self._agent = setting_of(settings).agent(
            sampler, host, renderer, settings.agent, settings.designer.prompts
        )

    async def run_iteration(self, settled: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Runs iteration ``state.iteration``, advances the state and returns the metrics row.

        Sampling changes the state until it is settled; learning does not. Where they overlap, an
        error of the sampling ahead is raised by the next call, a cancellation takes effect when
        this one has learned, and whoever does not call again calls :meth:`stop`.

        Args:
          settled: called when the state is what the next iteration begins with and nothing of
            that has begun: with the learner of after this call, it is what a resume needs.
        """
        began = time.monotonic()
        if self._told and self.exchange.count == 1:
            raise asyncio.CancelledError
        if self._ahead is None:
            row, episodes = await self._sample()
        else:
            row, episodes = await self._to_its_end(self._ahead)
        self._ahead = None
        trajectories = self._settle(row, episodes)
        settled()
        if self._overlaps and self.state.iteration < self.settings.iterations:
            self._ahead = asyncio.create_task(self._sample())
            if self._told:  # too late for the sampling before: others are learning from it
                self._ahead.cancel()
            learning = asyncio.to_thread(self._learn, row, trajectories)
            await self._to_its_end(asyncio.create_task(learning))
        else:
            self._learn(row, trajectories)
        row.time({"iteration": time.monotonic() - began})
        return row.values

    async def stop(self) -> None:
        """Gives up what is being sampled ahead."""
        while self._ahead is not None and not self._ahead.done():
            self.exchange.leave()
            self._ahead.cancel()  # again, where it goes on with other processes first
            with contextlib.suppress(asyncio.CancelledError):  # what is raised already matters more
                await asyncio.wait([self._ahead], timeout=1)
        if self._ahead is not None and not self._ahead.cancelled():
            self._ahead.exception()  # known, and of no use any more
        self._ahead = None

    async def _to_its_end(self, work: asyncio.Task[T]) -> T:
        """Its result. Who is cancelled meanwhile gives up the sampling ahead instead."""
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                self._told = True
                if self._ahead is not None:
                    self._ahead.cancel()
        return work.result()

    async def _sample(self) -> tuple[metrics.Row, list[Episode]]:
        """The environments and episodes of iteration ``state.iteration``."""
        state, iteration = self.state, self.state.iteration
        row = metrics.Row(iteration)
        self._phase.clear()

        plan = self.settings.schedule
        if schedule.starts_epoch(iteration, plan.k):
            self._supply.finish(state)
            state.environments = []
            await self._supply.fill(state, row)
        elif plan.top_up and len(state.environments) < plan.slots:
            await self._supply.fill(state, row)

        return row, await self._play()

    def _settle(self, row: metrics.Row, episodes: Sequence[Episode]) -> list[Trajectory]:
        """Enters what was played, pays the designers and advances the state; what is to learn."""
        state = self.state
        self._enter(episodes)
        row.play(self.settings.schedule.slots, state.environments, episodes, state.ledger)
        row.time(self._phase.seconds)
        row.values.update(diagnostics.of_play(episodes) | diagnostics.of_arms(episodes))

        due = self._due()
        paid = payment.pay(due, state, self.settings.rewards)
        designed = batch.designer_trajectories(due, paid, episodes, self.settings)
        played = batch.agent_trajectories(episodes, self.settings)
        self._record_designers(due, paid, designed)
        row.designer(due, paid, state.averages, self.settings.rewards)
        row.values.update(diagnostics.of_paid(due, paid, state.ledger, self.settings.rewards))
        row.batch(played, designed)
        row.values.update(diagnostics.of_batch(played, designed))
        row.values.update(diagnostics.of_lag(state.iteration, due, episodes))

        state.parked = [item for item in state.parked if item not in due]
        alive = {item.sha for item in [*state.environments, *state.parked]
                 if isinstance(item, Environment)}  # fmt: skip
        state.ledger.keep(alive)
        state.faulty &= alive
        state.iteration += 1
        return [*designed, *played]

    def _learn(self, row: metrics.Row, trajectories: Sequence[Trajectory]) -> None:
        """One optimizer step; the sampler gets the new weights."""
        with self._learning("learn", 1):
            row.learner(self._learner.update(trajectories))
        with self._learning("weights", 1):
            self._sampler.update(self._learner.params, row.values["iteration"] + 1)
        row.time(self._learning.seconds)

    async def _play(self) -> list[Episode]:
        """All arms on the same seeds, in an order that tells an environment nothing."""
        iteration = self.state.iteration
        episodes = [
            Episode(environment, iteration, arm, seed, play)
            for environment in self.state.environments
            for arm, seeds in self._arms(environment).items()
            for play, seed in enumerate(seeds)
        ]
        order = random.Random(schedule.derive_seed(self.settings.seed, "order", iteration))
        order.shuffle(episodes)
        mine = dealt(episodes, self.exchange)
        with self._phase("play", len(mine)):
            # In lots, because an episode that waited for a free instance while others wait for it
            # at the sampler would wait for ever.
            for start in range(0, len(mine), self.settings.sandbox.instances):
                lot = mine[start : start + self.settings.sandbox.instances]
                await asyncio.gather(*(self._play_one(episode) for episode in lot))
            own = [episode.result() for episode in mine]
            results = await all_results(self.exchange, "episodes", own)
        for episode, result in zip(episodes, results, strict=True):
            episode.take(result)
        for episode in episodes:
            self._records.episode(episode)
        return episodes

    def _arms(self, environment: Environment) -> dict[Arm, list[int]]:
        """Seeds of each arm in this iteration; only an environment's first one has hints."""
        plan, iteration = self.settings.schedule, self.state.iteration
        plain = schedule.play_seeds(
            self.settings.seed, environment.sha, iteration, plan.plain_plays, plan.instances
        )
        arms: dict[Arm, list[int]] = {"plain": plain}
        if environment.written == iteration:
            hinted = schedule.hinted_seeds(plain, plan.hinted_plays)
            if environment.hint is not None:
                arms["hinted"] = hinted
            if environment.placebo is not None:
                arms["placebo"] = hinted
        return arms

    async def _play_one(self, episode: Episode) -> None:
        await self._agent.play(episode)
        self._phase.advance()

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

    def _due(self) -> list[Environment | Invalid]:
        """What the designer is trained on now; in the last iteration, all that is left."""
        iteration, delay = self.state.iteration, self.settings.schedule.delay
        last = iteration == self.settings.iterations - 1
        return [item for item in self.state.parked if last or item.written + delay <= iteration]

    def _record_designers(
        self,
        due: Sequence[Environment | Invalid],
        paid: Sequence[float | None],
        designed: Sequence[Trajectory],
    ) -> None:
        """``designed``: a trajectory for each of ``due`` that was paid, in their order."""
        ledger, trained = self.state.ledger, iter(designed)
        for item, reward in zip(due, paid, strict=True):
            advantage = None if reward is None else next(trained).advantage
            if isinstance(item, Invalid):
                continue
            returns = ledger.returns(item.sha)
            self._records.designer(
                self.state.iteration,
                item,
                win_rate=sum(returns) / len(returns) if returns else None,
                regret=payment.regret(item, ledger),
                reward=reward,
                advantage=advantage,
            )
