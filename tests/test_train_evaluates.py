"""When a run evaluates, and what a signal in the middle of it leaves."""

import asyncio
import types

import pytest

from spade_jax import config, train


class Checkpoints:
    """Steps that were saved, with what of the state."""

    def __init__(self):
        self.saved = {}

    def latest(self):
        return max(self.saved, default=None)

    def save(self, step, arrays, data):
        self.saved[step] = data["selfplay"]


class Cycle:
    """Iterations that only count."""

    def __init__(self, settings, iteration=0):
        self.settings = settings
        self.state = types.SimpleNamespace(iteration=iteration)
        self.state.to_json = lambda: self.state.iteration

    async def run_iteration(self, settled):
        self.state.iteration += 1
        settled()
        return {"iteration": self.state.iteration - 1}

    async def stop(self):
        pass


def run(look, iteration=0, every=2, total=5):
    settings = config.Config(
        iterations=total,
        evaluation=config.Evaluation(every=every, benchmarks=("b",)),
        checkpoint=config.Checkpoint(every=4),
    )
    checkpoints, rows = Checkpoints(), []

    async def go():
        learner = types.SimpleNamespace(state="arrays")
        cycle = Cycle(settings, iteration)
        async for row in train._iterations(cycle, learner, None, checkpoints, look):
            rows.append(row["iteration"])

    try:
        asyncio.run(go())
    except asyncio.CancelledError:
        rows.append("cancelled")
    return checkpoints.saved, rows


@pytest.mark.parametrize(
    ("iteration", "every", "expected"),
    [(0, 2, [0, 2, 4, 5]), (3, 2, [4, 5]), (4, 2, [4, 5]), (0, 0, []), (5, 2, [5])],
)
def test_before_the_first_every_so_often_and_after_the_last(iteration, every, expected):
    seen = []

    async def look(done):
        seen.append(done)

    _, rows = run(look, iteration, every)
    assert seen == expected
    assert rows == list(range(iteration, 5))


@pytest.mark.parametrize("moment", [0, 2, 4])
def test_a_signal_during_an_evaluation_saves_the_iterations_before_it(moment):
    async def look(done):
        if done == moment:
            raise asyncio.CancelledError

    saved, rows = run(look)
    assert rows == [*range(moment), "cancelled"]
    assert saved[moment] == moment
    seen = []

    async def again(done):
        seen.append(done)

    run(again, iteration=moment)
    assert seen[0] == moment
