"""Reasoning-Gym as tasks: harder with the level, apart from the benchmark, gold answers right."""

import ast
import asyncio
import dataclasses
import itertools

import pytest
import reasoning_gym as package

from spade_jax.benchmarks import reasoning_gym as benchmark
from spade_jax.benchmarks.reasoning_gym_backend import FORMULAS, LITERALS, SIZE
from spade_jax.benchmarks.reasoning_gym_tasks import HARD, TASKS
from spade_jax.environments.parsing import boxed
from spade_jax.environments.reasoning_gym import FIRST_SEED, LEVELS, Generator
from spade_jax.environments.tasks import Spec, TaskHost, functions

CAP = 20


def settings(name, options):
    """The package's whole configuration, seed and size left out."""
    made = package.factory.DATASETS[name][1](**options)
    values = dataclasses.asdict(made)
    return {key: value for key, value in values.items() if key not in ("seed", "size")}


def test_there_are_enough_and_none_is_judged_by_evaluating():
    assert len(LEVELS) >= 24
    assert not set(LEVELS) & (FORMULAS | LITERALS)


@pytest.mark.parametrize("name", LEVELS)
def test_no_level_is_that_of_the_benchmark_and_parameters_rise(name):
    levels = [settings(name, LEVELS[name](level)) for level in range(CAP + 1)]
    hard = settings(name, HARD[TASKS[name]][name])
    assert hard not in levels
    numbers = [
        {key: abs(value) for key, value in level.items() if isinstance(value, int | float)}
        for level in levels
    ]
    for before, after in itertools.pairwise(numbers):
        assert all(after[key] >= before[key] for key in before)
    assert all(before != after for before, after in itertools.pairwise(numbers[::5]))


def test_no_seed_is_one_of_the_benchmarks():
    for made in (benchmark.hard(), benchmark.development()):
        assert made._seed + SIZE < FIRST_SEED


def test_gold_answers_are_right_and_others_are_not():
    ask = functions({name: Generator(name) for name in LEVELS})
    for name in LEVELS:
        for level in (0, CAP):
            question, truth = ask["problem"](name, level, 2**31 - 1)
            assert (question, truth) == ask["problem"](name, level, 2**31 - 1)
            gold = ast.literal_eval(truth)["answer"]
            rights = [ask["right"](name, answer, truth) for answer in (gold, "no idea")]
            assert rights == [True, False], (name, level)


@pytest.mark.slow
def test_confined_workers_ask_and_judge_every_task():
    """Gold answers, read out of the package's items, are right; others are not."""

    async def one(host, name, level):
        handle = await host.open(Spec(name, level).source())
        asked = await host.reset(handle, 2**31 - 1)
        gold = ast.literal_eval(host._open[handle].truth)["answer"]
        won = await host.step(handle, boxed(gold))
        assert asked == await host.reset(handle, 2**31 - 1)
        lost = await host.step(handle, boxed("no idea"))
        assert await host.reset(handle, 5) != asked
        return won.reward, lost.reward

    async def go():
        async with TaskHost("spade_jax.environments.reasoning_gym", count=1) as host:
            assert await host.names() == list(LEVELS)
            return {
                (name, level): await one(host, name, level) for name in LEVELS for level in (0, CAP)
            }

    rewards = asyncio.run(go())
    assert {pair for pair, found in rewards.items() if found != (1.0, 0.0)} == set()
