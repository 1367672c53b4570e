"""Tasks whose difficulty follows the agent: the RLVE baseline, in which only the agent learns."""

import dataclasses
import hashlib
import random

from spade_jax import config
from spade_jax.environments.tasks import Spec, TaskHost
from spade_jax.selfplay import metrics, schedule
from spade_jax.selfplay.deck import Deck
from spade_jax.selfplay.difficulty import SOLVED, Window
from spade_jax.selfplay.records import Recorder
from spade_jax.selfplay.state import Environment, Sample, State

NOBODY = Sample([], [], [])


class Adaptive:
    """Sets of different tasks, without replacement, each at a level out of its window.

    ``state.supply`` holds the windows and the tasks still to come in the present pass.
    """

    def __init__(self, settings: config.Config, host: TaskHost, records: Recorder):
        self._settings = settings
        self._host = host
        self._records = records

    def finish(self, state: State) -> None:
        """Counts what was solved, and moves windows."""
        if not state.supply:
            return
        windows = _windows(state)
        for environment in state.environments:
            spec = Spec.of(environment.source)
            # The same task may have been at the same level in the set before.
            returns = [
                play.episode_return
                for play in state.ledger.plays(environment.sha)
                if play.iteration >= environment.written
            ]
            wins = sum(value >= SOLVED for value in returns)
            windows[spec.task].played(spec.level, wins, len(returns), self._settings.tasks)
        state.supply["windows"] = _to_json(windows)

    async def fill(self, state: State, row: metrics.Row) -> None:
        """A whole set.

        Raises:
          ConfigError: there are fewer tasks than a set needs, or others than the run began with.
          HostFault: the tasks' module does not run.
        """
        names = self._chosen(await self._host.names())
        if not state.supply:
            windows = {name: Window() for name in names}
            state.supply = {"deck": dataclasses.asdict(Deck()), "windows": _to_json(windows)}
        windows, deck = _windows(state), Deck(**state.supply["deck"])
        if list(windows) != names:
            raise config.ConfigError(
                f"config.tasks: {self._settings.tasks.module} has other tasks than when this run "
                "was begun; put them back or use a new --workdir"
            )
        seed, iteration = self._settings.seed, state.iteration
        slots = self._settings.schedule.slots
        drawn = deck.draw(slots, len(names), schedule.derive_seed(seed, "tasks"))
        state.environments = []
        for slot, name in enumerate(names[card] for card in drawn):
            rng = random.Random(schedule.derive_seed(seed, "level", name, iteration))
            spec = Spec(name, rng.randint(windows[name].low, windows[name].high))
            state.environments.append(_environment(spec, iteration, slot))
        state.supply["deck"] = dataclasses.asdict(deck)
        for environment in state.environments:
            self._records.environment(environment)
        row.windows([(window.low, window.high) for window in windows.values()])

    def _chosen(self, names: list[str]) -> list[str]:
        """The tasks that the config asks for, in the module's order."""
        tasks, slots = self._settings.tasks, self._settings.schedule.slots
        if unknown := [name for name in tasks.names if name not in names]:
            known = ", ".join(names)
            raise config.ConfigError(
                f"config.tasks.names: {', '.join(unknown)}: no such task; there are {known}"
            )
        chosen = [name for name in names if not tasks.names or name in tasks.names]
        if len(chosen) < slots:
            raise config.ConfigError(
                f"config.tasks: {len(chosen)} tasks for a set of schedule.slots = {slots} "
                "different ones; lower the slots or name more"
            )
        return chosen


def _environment(spec: Spec, iteration: int, slot: int) -> Environment:
    source = spec.source()
    return Environment(
        sha=hashlib.sha256(source.encode()).hexdigest(),
        name=f"{iteration:05d}_{slot:03d}_{schedule.slug(spec.task)}",
        skill=spec.task,
        slot=slot,
        written=iteration,
        source=source,
        document="",
        exemplars=[],
        sample=NOBODY,
        origin=f"{spec.task}, level {spec.level}",
    )


def _windows(state: State) -> dict[str, Window]:
    return {name: Window(**window) for name, window in state.supply["windows"].items()}


def _to_json(windows: dict[str, Window]) -> dict[str, dict[str, int]]:
    return {name: dataclasses.asdict(window) for name, window in windows.items()}
