"""Which items are chosen, and what becomes of an attempt that raises."""

import asyncio
import collections

import pytest

from spade_jax.benchmarks import runner
from spade_jax.benchmarks.interface import Broken, Item, Outcome

ITEMS = [Item(f"{column}_{index}", column, {}) for column in "abc" for index in range(20)]


class Raising:
    """An attempt raises what ``raises`` holds for its item."""

    def __init__(self, raises):
        self.raises, self.running, self.most, self.left = raises, 0, 0, False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.left = True

    async def attempt(self, item, policy):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if item.name in self.raises:
            raise self.raises[item.name]
        return Outcome(item.name, item.column, 1.0, "", "", {})


class Count:
    done = 0

    def advance(self):
        self.done += 1


def run(benchmark, jobs=3):
    outcomes, progress = [], Count()
    asyncio.run(runner.run(benchmark, ITEMS, None, jobs, outcomes.append, progress))
    assert progress.done == len(outcomes)
    return outcomes


def test_an_error_is_the_loss_of_its_item():
    benchmark = Raising({"b_7": ValueError("odd")})
    outcomes = {outcome.item: outcome for outcome in run(benchmark)}
    assert outcomes.keys() == {item.name for item in ITEMS}
    assert outcomes.pop("b_7") == Outcome("b_7", "b", 0.0, "not judged", "ValueError: odd", {})
    assert all(outcome.score == 1 for outcome in outcomes.values())
    assert benchmark.most == 3
    assert benchmark.left


def test_a_broken_policy_ends_it():
    benchmark = Raising({"a_5": Broken("gone")})
    with pytest.raises(Broken, match="gone"):
        run(benchmark)
    assert benchmark.left


def test_choice_is_spread_and_a_larger_one_holds_the_smaller():
    small, large = runner.choose(ITEMS, 7), runner.choose(ITEMS, 30)
    assert sorted(collections.Counter(item.column for item in small).values()) == [2, 2, 3]
    assert set(map(id, small)) < set(map(id, large))
    assert runner.choose(list(reversed(ITEMS)), 7) == small
    assert runner.choose(ITEMS, 0) == runner.choose(ITEMS, 60) == ITEMS
