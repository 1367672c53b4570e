"""Sampling of an iteration while the one before is learned from: the order is made by events."""

import asyncio
import dataclasses
import json
import threading

import pytest
from conftest import ScriptedPolicy

from spade_jax.data import corpus
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.exchange import Alone
from spade_jax.selfplay.state import State

LIMIT = 60.0  # seconds after which what never comes is given up


@pytest.fixture
def overlapped(settings):
    """Two environments, quickly checked, for two iterations each."""
    schedule = dataclasses.replace(
        settings.schedule,
        **{"overlap": "next_iteration", "slots": 2, "active_skills": 1, "top_up": True},
        **{"plain_plays": 2, "hinted_plays": 2},
    )
    quick = dataclasses.replace(settings.validation, seeds=1, random_episodes=1)
    return dataclasses.replace(settings, schedule=schedule, validation=quick)


class Learner:
    """Takes note of its batches; calls ``during(iteration)`` in each update."""

    params = "params"

    def __init__(self, during=lambda iteration: None):
        self.batches, self.during = [], during

    def update(self, trajectories):
        self.batches.append(list(trajectories))
        self.during(len(self.batches) - 1)
        return {"grad_norm/agent": 1.0, "grad_norm/designer": 0.0}


class Policy(ScriptedPolicy):
    """Tells when the first request of each iteration has come."""

    def __init__(self):
        super().__init__()
        self.asked = [threading.Event() for _ in range(5)]

    def __call__(self, request, prompt):
        self.asked[int(request.uid.split("/")[0])].set()
        return super().__call__(request, prompt)


def run(make_cycle, settings, iterations=None, after=None, **parts):
    """The cycle and its rows; ``after(iteration, cycle)`` is called where a resume can begin."""

    async def go():
        async with EnvironmentHost(settings.sandbox) as host:
            cycle = make_cycle(host, settings, **parts)
            rows = []
            while cycle.state.iteration < (iterations or settings.iterations):
                settled = (lambda: after(cycle)) if after else (lambda: None)
                rows.append(await cycle.run_iteration(settled))
            await cycle.stop()
            return cycle, rows

    return asyncio.run(go())


def told(rows):
    """What does not depend on the clock or on which weights sampled."""
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "lag/"))} for r in rows]


def test_the_next_iteration_is_sampled_while_this_one_is_learned_from(
    make_cycle, overlapped, scripted, renderer
):
    """No update ends before the next iteration asks, and what that asks first is one version old,
    nothing is older."""
    policy = Policy()
    sampler = scripted(renderer, policy)
    answer, first = sampler._answer, {}

    def noting(request):
        first.setdefault(int(request.uid.split("/")[0]), sampler.version)
        return answer(request)

    sampler._answer = noting

    def during(iteration):
        if iteration < 3:
            assert policy.asked[iteration + 1].wait(LIMIT)

    _, rows = run(make_cycle, overlapped, learner=Learner(during), sampler=sampler)
    assert first == {0: 0, 1: 0, 2: 1, 3: 2}
    assert rows[0]["lag/agent/max"] == 0
    assert max(row["lag/agent/max"] for row in rows[1:]) == 1  # the agent asks first in 1 and 3


def unstamped(value):
    """A state without the versions that sampled, which overlap is there to change."""
    if isinstance(value, dict):
        return {key: unstamped(each) for key, each in value.items() if key != "versions"}
    return [unstamped(each) for each in value] if isinstance(value, list) else value


def test_it_makes_of_the_same_replies_what_one_after_the_other_makes(make_cycle, overlapped):
    """Designers' parked batches, ledger and memory too; and so it does from any resume."""
    schedule = dataclasses.replace(overlapped.schedule, overlap="none")
    plain, expected = run(make_cycle, dataclasses.replace(overlapped, schedule=schedule))
    saved, documents = {}, corpus.load("pydoc", overlapped.seed)

    def save(cycle):
        state = json.loads(json.dumps(cycle.state.to_json()))
        saved[cycle.state.iteration] = state, documents.get_state()

    whole, rows = run(make_cycle, overlapped, after=save, corpus=documents)
    assert told(rows) == told(expected)
    assert whole._learner.batches == plain._learner.batches
    assert unstamped(whole.state.to_json()) == unstamped(plain.state.to_json())
    for iteration in (1, 2):  # one where the set goes on, and one where another is written
        state, place = saved[iteration]
        documents.set_state(place)
        parts = {"state": State.from_json(state, overlapped.memory), "corpus": documents}
        again, rows = run(make_cycle, overlapped, **parts)
        assert told(rows) == told(expected)[iteration:]
        assert again._learner.batches == plain._learner.batches[iteration:]


def test_an_error_of_the_learner_ends_the_sampling_ahead(
    make_cycle, overlapped, scripted, renderer
):
    """Also where the sampling would never end. It exchanges nothing on its way out: other processes
    would take its end for a stop, and not hear of the error."""
    policy, left = Policy(), []

    class Leaving(Alone):
        def leave(self):
            left.append(list(ended))

    def failing(iteration):
        assert policy.asked[1].wait(LIMIT)
        raise FloatingPointError("no gradient")

    sampler = scripted(renderer, policy)
    generate, ended = sampler.generate, []

    async def hanging(requests):
        answers = await generate(requests)
        if requests[0].uid.startswith("1/"):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(requests[0].uid)
        return answers

    sampler.generate = hanging

    async def go():
        async with EnvironmentHost(overlapped.sandbox) as host:
            parts = {"learner": Learner(failing), "sampler": sampler, "exchange": Leaving()}
            cycle = make_cycle(host, overlapped, **parts)
            with pytest.raises(FloatingPointError):
                await cycle.run_iteration()
            await cycle.stop()

    asyncio.run(asyncio.wait_for(go(), LIMIT))
    assert ended
    assert left[0] == []


def test_an_error_of_the_sampling_ahead_comes_after_the_step_that_was_made(
    make_cycle, overlapped, scripted, renderer
):
    policy = Policy()
    sampler = scripted(renderer, policy)
    generate = sampler.generate

    async def failing(requests):
        answers = await generate(requests)
        if requests[0].uid.startswith("1/"):
            raise ConnectionError("no server")
        return answers

    sampler.generate = failing
    learner = Learner(lambda iteration: policy.asked[1].wait(LIMIT))

    async def go():
        async with EnvironmentHost(overlapped.sandbox) as host:
            cycle = make_cycle(host, overlapped, learner=learner, sampler=sampler)
            row = await cycle.run_iteration()
            assert (row["iteration"], cycle.state.iteration) == (0, 1)
            with pytest.raises(ConnectionError, match="no server"):
                await cycle.run_iteration()
            await cycle.stop()

    asyncio.run(asyncio.wait_for(go(), LIMIT))
    assert len(learner.batches) == 1


@pytest.mark.parametrize("sampled", [False, True])
def test_who_is_cancelled_while_learning_is_so_once_it_has_learned(make_cycle, overlapped, sampled):
    """As SIGTERM does: the step is whole and told, what was sampled ahead is given up, also where
    that had come to its end and nothing would have to be waited for."""
    learning, go_on = threading.Event(), threading.Event()

    def during(iteration):
        learning.set()
        assert go_on.wait(LIMIT)

    async def go():
        async with EnvironmentHost(overlapped.sandbox) as host:
            cycle = make_cycle(host, overlapped, learner=Learner(during))
            rows = []

            async def iterate():
                while True:
                    rows.append(await cycle.run_iteration())

            task = asyncio.create_task(iterate())
            await asyncio.to_thread(learning.wait, LIMIT)
            if sampled:
                await asyncio.wait([cycle._ahead])
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await cycle.stop()
            return cycle, rows

    cycle, rows = asyncio.run(asyncio.wait_for(go(), LIMIT))
    assert [row["iteration"] for row in rows] == [0]
    assert cycle.state.iteration == len(cycle._learner.batches) == 1
