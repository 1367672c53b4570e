"""The games' situations as tasks: each question holds what its answer needs, and asks a family."""

import asyncio

import pytest

from spade_jax.environments.tasks import Spec, TaskHost
from spade_jax.warm_start.families import FAMILIES
from spade_jax.warm_start.tasks import reactions

TASKS = {task.name: task for task in reactions()}
USUAL = {family.name: dict(family.situations) for family in FAMILIES}
SEEDS = range(40)


def solved(family, question):
    """The reaction, from the text alone."""
    *before, last = question.split("\n")
    if not before:
        rule, _, case = last.partition(", ")
        return ("not " if rule == "contrary" else "") + USUAL[family][case]
    (told,) = [line for line in before if line.endswith((", right", ", wrong"))]
    case, _, tried = told.rpartition(", ")[0].rpartition(": ")
    contrary = (tried == USUAL[family][case]) == told.endswith("wrong")
    return ("not " if contrary else "") + USUAL[family][last]


@pytest.mark.parametrize("level", [0, 1, 2, 20])
def test_the_question_tells_the_answer(level):
    assert set(TASKS) == set(USUAL)
    answers = set()
    for name, task in TASKS.items():
        for seed in SEEDS:
            question, truth = task.problem(level, seed)
            assert question.count("\n") == level
            assert task.right(solved(name, question), truth)
            other = truth.removeprefix("not ") if truth.startswith("not ") else f"not {truth}"
            assert not task.right(other, truth)
            answers.add(truth.startswith("not "))
    assert answers == {True, False}


def test_a_question_is_a_function_of_level_and_seed():
    task = TASKS["Effect"]
    assert task.problem(3, 7) == task.problem(3, 7)
    assert len({task.problem(3, seed)[0] for seed in SEEDS}) > 30


def test_the_module_serves_them():
    async def go():
        async with TaskHost("spade_jax.warm_start.tasks", count=1) as host:
            assert await host.names() == list(TASKS)
            handle = await host.open(Spec("Effect", 2).source())
            asked = await host.reset(handle, 5)
            return await host.step(handle, f"\\boxed{{{solved('Effect', asked)}}}")

    result = asyncio.run(go())
    assert (result.reward, result.terminated) == (1.0, True)
