"""Tasks as environments of one turn: asked, judged, in processes of their own."""

import asyncio

import pytest

from spade_jax.environments.parsing import boxed
from spade_jax.environments.tasks import Spec, TaskHost
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from tests.environments import odd_tasks

MODULE = "tests.environments.odd_tasks"


def with_host(use, module=MODULE):
    async def go():
        async with TaskHost(module, count=2) as host:
            return await use(host)

    return asyncio.run(go())


async def question(host, spec, seed):
    handle = await host.open(spec.source())
    return handle, await host.reset(handle, seed)


def test_a_question_is_that_of_the_level_and_the_seed_and_an_answer_ends_it():
    spec = Spec("sum", 2)
    text, truth = odd_tasks.TASKS[0].problem(2, 7)

    async def use(host):
        results = []
        for action in (boxed(str(truth)), boxed(f" {truth} "), boxed("0"), boxed("?"), str(truth)):
            handle, asked = await question(host, spec, 7)
            assert asked == text
            results.append(await host.step(handle, action))
            with pytest.raises(EnvironmentFault, match="one turn"):
                await host.step(handle, action)
            await host.close(handle)
        return await host.names(), results

    names, results = with_host(use)
    assert names == ["sum", "odd", "other"]
    assert all(result.terminated and not result.truncated for result in results)
    # A judge that raises on what it cannot read has not seen a right answer.
    assert [result.reward for result in results] == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_generator_that_gives_up_is_asked_with_the_next_seed_but_not_for_ever():
    async def use(host):
        _, even = await question(host, Spec("odd", 1), 4)
        _, odd = await question(host, Spec("odd", 1), 5)
        with pytest.raises(EnvironmentFault, match="no such problem"):
            await question(host, Spec("odd", 9), 5)
        return even, odd

    even, odd = with_host(use)
    assert even == odd


def test_what_a_task_has_not_is_missing():
    async def use(host):
        handle = await host.open(Spec("sum", 0).source())
        assert await host.tools(handle) == []
        for request in (host.solution(handle), host.examine(handle), host.call(handle, "x", {})):
            with pytest.raises(EnvironmentFault, match="missing: tasks have no"):
                await request

    with_host(use)


def test_a_module_that_does_not_run_is_named():
    async def use(host):
        with pytest.raises(HostFault, match=r"tests\.nowhere.*does `python -m tests\.nowhere`"):
            await host.names()

    with_host(use, "tests.nowhere")
