"""Environment sets out of a pool: the fixed-pool baseline, in which only the agent learns."""

import collections
import dataclasses
from collections.abc import Sequence

from spade_jax import config
from spade_jax.environments.pools import Pool, Program
from spade_jax.selfplay import metrics, schedule
from spade_jax.selfplay.deck import Deck
from spade_jax.selfplay.records import Recorder
from spade_jax.selfplay.state import Environment, Sample, State

NOBODY = Sample([], [], [])
ALL = "all"


class Pooled:
    """Draws every set from the pool without replacement, by config equally often of each skill.

    ``state.supply`` holds the pool's digest and, of each deck, what is still to come in its pass.
    """

    def __init__(self, settings: config.Config, pool: Pool, records: Recorder):
        """``pool``: of different programs.

        Raises:
          ConfigError: there are fewer environments than a set needs.
        """
        self._settings = settings
        self._pool = pool
        self._records = records
        self._piles: dict[str, list[Program]] = collections.defaultdict(list)
        for program in sorted(pool.programs, key=lambda program: program.sha):
            self._piles[program.skill if settings.pool.balanced else ALL].append(program)
        slots = settings.schedule.slots
        share = -(-slots // len(self._piles))
        few = [f"{skill} {len(pile)}" for skill, pile in self._piles.items() if len(pile) < share]
        if few:
            raise config.ConfigError(
                f"config.pool.source: {settings.pool.source!r} has too few environments for a set "
                f"of schedule.slots = {slots}, which takes up to {share} of each: "
                f"{', '.join(sorted(few))}; lower the slots"
            )

    def finish(self, state: State) -> None:
        """A pool learns nothing from having been played."""

    async def fill(self, state: State, row: metrics.Row) -> None:
        """A whole set: a pool leaves no slot empty.

        Raises:
          ConfigError: the pool is not the one that the run was begun with.
        """
        decks = self._decks(state)
        skills = self._of_slots(state.iteration // self._settings.schedule.k)
        drawn = {}
        for skill, count in sorted(collections.Counter(skills).items()):
            seed = schedule.derive_seed(self._settings.seed, "pool", skill)
            pile = self._piles[skill]
            drawn[skill] = iter([pile[i] for i in decks[skill].draw(count, len(pile), seed)])
        state.environments = [
            _environment(next(drawn[skill]), state.iteration, slot)
            for slot, skill in enumerate(skills)
        ]
        state.supply = {
            "pool": self._pool.digest,
            "decks": {skill: dataclasses.asdict(deck) for skill, deck in decks.items()},
        }
        for environment in state.environments:
            self._records.environment(environment)
        row.drawn(max(deck.passes for deck in decks.values()))

    def _decks(self, state: State) -> dict[str, Deck]:
        if not state.supply:
            return {skill: Deck() for skill in self._piles}
        if state.supply["pool"] != self._pool.digest:
            raise config.ConfigError(
                f"config.pool.source: {self._settings.pool.source!r} holds other environments than "
                "when this run was begun; put them back or use a new --workdir"
            )
        return {skill: Deck(**deck) for skill, deck in state.supply["decks"].items()}

    def _of_slots(self, epoch: int) -> Sequence[str]:
        """The pile of each slot. Where slots are no multiple of the piles, they take turns."""
        slots, piles = self._settings.schedule.slots, sorted(self._piles)
        return [piles[(epoch * slots + slot) % len(piles)] for slot in range(slots)]


def _environment(program: Program, iteration: int, slot: int) -> Environment:
    return Environment(
        sha=program.sha,
        name=f"{iteration:05d}_{slot:03d}_{schedule.slug(program.skill)}",
        skill=program.skill,
        slot=slot,
        written=iteration,
        source=program.source,
        document="",
        exemplars=[],
        sample=NOBODY,
        origin=program.name,
    )
