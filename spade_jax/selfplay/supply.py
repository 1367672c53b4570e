"""Where environment sets come from: the policy's own designer, or whoever else has the protocol."""

from collections.abc import Iterator
from typing import Protocol

from spade_jax import config
from spade_jax.data.corpus import Document
from spade_jax.sampling.interface import Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.sandbox.interface import Host
from spade_jax.selfplay import metrics, payment, schedule
from spade_jax.selfplay.designer import Designer, Slot, invalid, solutions
from spade_jax.selfplay.exchange import Exchange
from spade_jax.selfplay.hints import with_placebos, write_hints
from spade_jax.selfplay.memory import Record
from spade_jax.selfplay.phases import Phases
from spade_jax.selfplay.records import Recorder
from spade_jax.selfplay.state import State


class Supply(Protocol):
    """Gives the cycle its environments. What it has to remember, it keeps in the state."""

    def finish(self, state: State) -> None:
        """The epoch of ``state.environments`` is over; the ledger tells what was played."""
        ...

    async def fill(self, state: State, row: metrics.Row) -> None:
        """Puts environments into the slots of ``state.environments`` that have none."""
        ...


class Written:
    """The designer writes the sets, with documents and memory, and hints for them."""

    def __init__(
        self,
        settings: config.Config,
        sampler: Sampler,
        host: Host,
        renderer: Renderer,
        corpus: Iterator[Document] | None,
        records: Recorder,
        phases: Phases,
        exchange: Exchange,
    ):
        self._settings = settings
        self._sampler = sampler
        self._renderer = renderer
        self._corpus = corpus
        self._records = records
        self._phase = phases
        self._exchange = exchange
        self._designer = Designer(sampler, host, renderer, settings, exchange)

    def finish(self, state: State) -> None:
        """Enters the set into memory."""
        ledger = state.ledger
        for environment in state.environments:
            if returns := ledger.returns(environment.sha):
                state.memory.add(
                    Record(
                        environment.sha,
                        environment.skill,
                        environment.source,
                        sum(returns) / len(returns),
                        payment.regret(environment, ledger),
                    )
                )

    async def fill(self, state: State, row: metrics.Row) -> None:
        """Designer, validation, hints."""
        settings, iteration = self._settings, state.iteration
        plan, present = settings.schedule, state.environments
        skills = schedule.active_skills(iteration, plan.k, plan.skills, plan.active_skills)
        filled = {environment.slot for environment in present}
        slots = [
            Slot(index, skills[index % len(skills)])
            for index in range(plan.slots)
            if index not in filled
        ]
        # Of every process equally many, whatever its share: so all are at one place of the corpus.
        draws = -(-len(slots) // self._exchange.count) * settings.designer.attempts
        documents = [next(self._corpus) if self._corpus else None for _ in range(draws)]
        with self._phase("design", len(slots)):
            written, attempts = await self._designer.write(
                slots, iteration, documents, state.memory, present
            )
        with self._phase("hint", len(written)):
            written, hint_tokens = await write_hints(
                written,
                solutions(attempts),
                self._sampler,
                self._renderer,
                settings,
                self._exchange,
            )
        if not present:
            written = with_placebos(written, settings, iteration)
        state.environments = sorted([*present, *written], key=lambda item: item.slot)
        if settings.designer.trained:
            state.parked += written
            if settings.designer.penalise_invalid:
                state.parked += invalid(attempts, iteration)
        by_slot = {environment.slot: environment for environment in written}
        for attempt in attempts:
            if attempt.outcome == "accepted":
                self._records.environment(by_slot[attempt.slot.index], attempt)
            else:
                self._records.rejection(iteration, attempt)
        row.design(len(slots), attempts, written, hint_tokens)
