"""Workers answer, and what goes wrong in one of them stays there."""

import asyncio

import pytest

from spade_jax.sandbox import seccomp
from spade_jax.sandbox.workers import ENVIRONMENT, Fault, Workers

MODULE = "tests.sandbox.odd_backend"


def with_workers(use, **options):
    async def go():
        async with Workers(MODULE, **options) as workers:
            return await use(workers)

    return asyncio.run(go())


def test_faults_are_named_and_the_pool_goes_on():
    async def use(workers):
        faults = []
        for name in ("die", "fill"):
            with pytest.raises(Fault) as caught:
                await workers.run(name)
            faults.append(str(caught.value))
        return faults, await workers.run("echo", {"a": [1, None, "é"]})

    (died, full), value = with_workers(use, count=1)
    assert "the worker ended" in died
    assert "MemoryError" in full
    assert value == {"a": [1, None, "é"]}


def test_a_late_answer_is_a_fault():
    async def use(workers):
        with pytest.raises(Fault, match=r"hang: no answer within 0\.5 s"):
            await workers.run("hang")
        return len(workers._running)

    assert with_workers(use, count=1, deadline=0.5) == 0


def test_a_worker_is_confined_and_knows_nothing():
    async def use(workers):
        return await asyncio.gather(workers.run("reach"), workers.run("surroundings"))

    able, (zone, variables) = with_workers(use, count=2)
    if seccomp.program() is not None:
        assert able == []
    assert zone == "UTC0" or zone == "UTC"
    assert set(variables) <= {*ENVIRONMENT, "TZ", "PYTHONHASHSEED", "LC_CTYPE"}


def test_answers_belong_to_their_requests():
    async def use(workers):
        return await asyncio.gather(*(workers.run("echo", number) for number in range(50)))

    assert with_workers(use, count=2) == list(range(50))


def test_no_process_is_left():
    async def use(workers):
        await workers.run("echo", 1)
        (process,) = workers._running
        return process

    assert with_workers(use, count=1).returncode is not None
