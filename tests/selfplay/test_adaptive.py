"""Adaptive difficulty in the whole loop: windows follow the plays, state is in the checkpoint."""

import asyncio
import dataclasses
import json
import re

import pytest

from spade_jax import config
from spade_jax.environments.tasks import Spec, TaskHost
from spade_jax.selfplay import metrics
from spade_jax.selfplay.adaptive import Adaptive
from spade_jax.selfplay.ledger import Play
from spade_jax.selfplay.records import Unrecorded
from spade_jax.selfplay.state import State

NAMES = [f"task{number}" for number in range(7)]


class Named:
    """A host of which only the names are asked."""

    def __init__(self, names=NAMES):
        self._names = names

    async def names(self):
        return list(self._names)


@pytest.fixture
def adaptive(settings):
    """Three tasks an iteration, eight attempts at the top."""
    return dataclasses.replace(
        settings,
        schedule=dataclasses.replace(settings.schedule, k=1, delay=1, plain_plays=4, slots=3),
        tasks=config.Tasks(module="tests.environments.odd_tasks", attempts=8, cap=5),
    )


def run(settings, iterations, state=None, skill=lambda task, level: 1.0, host=None):
    """Sets by iteration of plays that end as ``skill`` says, and the state."""
    state = state or State.fresh(settings.memory)
    supply, sets = Adaptive(settings, host or Named(), Unrecorded()), []
    for _ in range(iterations):
        supply.finish(state)
        row = metrics.Row(state.iteration)
        asyncio.run(supply.fill(state, row))
        specs = [Spec.of(item.source) for item in state.environments]
        sets.append(specs)
        for item, spec in zip(state.environments, specs, strict=True):
            for seed in range(settings.schedule.plain_plays):
                value = skill(spec.task, spec.level)
                state.ledger.add(Play(item.sha, state.iteration, "plain", seed, value))
        state.ledger.keep(item.sha for item in state.environments)
        state.iteration += 1
    return sets, state, row


def test_what_is_saved_does_not_change_afterwards(adaptive):
    """Where iterations overlap, the next set is drawn before a checkpoint is written."""
    _, state, _ = run(adaptive, 2)
    saved = state.to_json()["supply"]
    before = json.dumps(saved)
    run(adaptive, 2, state)
    assert json.dumps(saved) == before != json.dumps(state.supply)


def windows(state):
    return {n: (w["low"], w["high"]) for n, w in state.supply["windows"].items()}


def test_every_task_comes_once_in_a_pass_and_levels_stay_in_the_window(adaptive):
    sets, state, row = run(adaptive, 120)
    first = [spec.task for specs in sets[:7] for spec in specs]
    assert sorted(first) == sorted(NAMES * 3)
    assert all(len({spec.task for spec in specs}) == 3 for specs in sets)
    assert set(windows(state).values()) == {(2, 5)}  # at the cap, four wide
    assert row.values["tasks/high"] == row.values["tasks/highest"] == 5
    assert {spec.level for specs in sets[:3] for spec in specs} == {0}
    assert {spec.level for specs in sets[-10:] for spec in specs} <= {2, 3, 4, 5}
    assert len({spec.level for specs in sets[-10:] for spec in specs}) > 2


def test_each_task_goes_as_far_as_it_is_solved(adaptive):
    limits = {name: number for number, name in enumerate(NAMES)}
    _, state, _ = run(adaptive, 120, skill=lambda task, level: float(level < limits[task]))
    assert [high for _, high in windows(state).values()] == [0, 1, 2, 3, 4, 5, 5]


def test_partial_returns_are_no_wins(adaptive):
    _, state, _ = run(adaptive, 30, skill=lambda *_: 0.99)
    assert set(windows(state).values()) == {(0, 0)}


def test_the_checkpoint_holds_all_that_counts(adaptive):
    def skill(task, level):
        return float(level < 3)

    whole, end, _ = run(adaptive, 25, skill=skill)
    first, state, _ = run(adaptive, 11, skill=skill)
    state = State.from_json(json.loads(json.dumps(state.to_json())), adaptive.memory)
    rest, state, _ = run(adaptive, 14, state=state, skill=skill)
    assert first + rest == whole
    assert state.supply == end.supply
    with pytest.raises(config.ConfigError, match="other tasks than when this run was begun"):
        run(adaptive, 1, state=state, host=Named(NAMES[:5]))


def test_tasks_are_chosen_by_name(adaptive):
    some = dataclasses.replace(adaptive.tasks, names=("task5", "task1", "task2"))
    sets, _, _ = run(dataclasses.replace(adaptive, tasks=some), 4)
    assert {spec.task for specs in sets for spec in specs} == set(some.names)
    few = dataclasses.replace(adaptive.tasks, names=("task5",))
    with pytest.raises(config.ConfigError, match=r"1 tasks for a set of schedule\.slots = 3"):
        run(dataclasses.replace(adaptive, tasks=few), 1)
    wrong = dataclasses.replace(adaptive.tasks, names=("task9",))
    with pytest.raises(config.ConfigError, match="task9: no such task; there are task0"):
        run(dataclasses.replace(adaptive, tasks=wrong), 1)


def test_only_the_agent_is_trained_and_windows_move(make_cycle, adaptive, scripted, renderer):
    """Real workers; a policy that reads the sum and adds, but never more than two digits."""

    def write(request, prompt):
        first, second = map(int, re.findall(r"(\d+) \+ (\d+)", prompt)[-1])
        return f"\\boxed{{{first + second if max(first, second) < 100 else 0}}}"

    async def go():
        async with TaskHost(adaptive.tasks.module, count=2) as host:
            supply = Adaptive(adaptive, host, Unrecorded())
            sampler = scripted(renderer, write)
            cycle = make_cycle(host, adaptive, sampler=sampler, supply=supply, corpus=None)
            return [await cycle.run_iteration() for _ in range(9)]

    rows = asyncio.run(go())
    for row in rows:
        assert row["environments/accepted"] == 3
        assert row["agent/trained"] == row["episodes/plain"] == row["episodes/terminated"] == 12
        assert row["designer/trained"] == row["episodes/hinted"] == 0
    assert rows[0]["tasks/high"] == 0
    # Two iterations at levels 0 (one digit) and 1 each; three digits are beyond the policy.
    assert rows[-1]["tasks/highest"] == 2
