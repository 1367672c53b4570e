"""Waves: batches are a function of the run, and nobody waits for someone who is gone."""

import asyncio
import contextlib
import random

import pytest

from spade_jax.sampling.interface import Completion, Request, SamplingParams
from spade_jax.sampling.waves import Waves


class Recorder:
    """Answers each request with its first token plus one; writes down what it was sent."""

    def __init__(self, delay=0.0, fail=False):
        self.batches, self.calls, self.delay, self.fail = [], [], delay, fail

    async def generate(self, requests):
        self.batches.append([request.uid for request in requests])
        self.calls.append(self.batches[-1])
        await asyncio.sleep(self.delay)
        if self.fail:
            raise RuntimeError("device lost")
        return [Completion([request.tokens[0] + 1], [0.0], "stop", 0) for request in requests]

    def release(self, session):
        self.calls.append(f"release {session}")

    def update(self, params, version):
        self.calls.append(f"update {version}")


def request(uid, token=0):
    return Request([token], SamplingParams(1), uid)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 10))


async def episode(waves, name, turns, clock):
    token = 0
    for turn in range(turns):
        await asyncio.sleep(clock.random() * 0.003)
        (completion,) = await waves.generate([request(f"{name}/{turn}", token)])
        token = completion.tokens[0]
    await asyncio.sleep(clock.random() * 0.003)
    waves.release(name)
    return token


@pytest.mark.parametrize("seed", range(4))
def test_batches_do_not_depend_on_delays(seed):
    inner, clock = Recorder(), random.Random(seed)
    waves, names = Waves(inner), "dacb"
    lengths = {"a": 1, "b": 3, "c": 2, "d": 3}
    tokens = run(waves_gather(waves, names, lengths, clock))
    assert tokens == [lengths[name] for name in names]
    assert inner.calls == [
        ["a/0", "b/0", "c/0", "d/0"],
        "release a",
        ["b/1", "c/1", "d/1"],
        "release c",
        ["b/2", "d/2"],
        "release b",
        "release d",
    ]


async def waves_gather(waves, names, lengths, clock):
    return await waves.gather(*(episode(waves, n, lengths[n], clock) for n in names))


def test_answers_keep_the_order_of_the_requests():
    waves = Waves(Recorder())

    async def asks(name, tokens):
        async with waves.party():
            done = await waves.generate([request(f"{name}{-t}", t) for t in tokens])
        return [completion.tokens[0] for completion in done]

    async def main():
        return await asyncio.gather(asks("x", [3, 9, 1]), asks("a", [5, 2]), asks("b", []))

    assert run(main()) == [[4, 10, 2], [6, 3], []]


def test_a_party_that_raises_or_leaves_holds_nobody_up():
    inner = Recorder()
    waves = Waves(inner)

    async def stays(name):
        async with waves.party():
            for turn in range(3):
                await waves.generate([request(f"{name}/{turn}")])

    async def leaves():
        async with waves.party():
            await waves.generate([request("leaves")])
            await asyncio.sleep(0.01)

    async def raises():
        async with waves.party():
            await waves.generate([request("raises")])
            await asyncio.sleep(0.01)
            raise ValueError("broken environment")

    async def main():
        return await asyncio.gather(
            stays("s"), leaves(), raises(), stays("t"), return_exceptions=True
        )

    results = run(main())
    assert isinstance(results[2], ValueError)
    assert inner.batches == [
        ["leaves", "raises", "s/0", "t/0"],
        ["s/1", "t/1"],
        ["s/2", "t/2"],
    ]


def test_a_coroutine_with_two_dialogues_is_one_party():
    inner = Recorder()
    waves = Waves(inner)

    async def speaks_with_itself():
        async with waves.party():
            async with waves.party():
                await waves.generate([request("user/0")])
                await waves.generate([request("agent/0")])
            await waves.generate([request("agent/1")])

    async def other():
        async with waves.party():
            for turn in range(3):
                await waves.generate([request(f"other/{turn}")])

    async def main():
        await asyncio.gather(speaks_with_itself(), other())

    run(main())
    assert inner.batches == [
        ["other/0", "user/0"],
        ["agent/0", "other/1"],
        ["agent/1", "other/2"],
    ]


@pytest.mark.parametrize("when", ["before it starts", "parked", "in the wave", "between waves"])
def test_a_cancelled_party_holds_nobody_up(when):
    inner = Recorder(delay=0.02)
    waves = Waves(inner)

    async def stays(held):
        await waves.generate([request("s/0")])
        await held
        await waves.generate([request("s/1")])
        return "done"

    async def doomed():
        await waves.generate([request("d/0")])
        await asyncio.sleep(60)

    async def main():
        loop = asyncio.get_running_loop()
        held, tasks = loop.create_future(), []

        async def slow():  # keeps the first wave open
            await asyncio.sleep(0.01)

        async def watch(coroutine):
            tasks.append(asyncio.current_task())
            return await coroutine

        delay = {
            "before it starts": None,
            "parked": 0.005,
            "in the wave": 0.02,
            "between waves": 0.05,
        }

        async def axe():
            if delay[when] is not None:
                await asyncio.sleep(delay[when])
                tasks[0].cancel()
            await asyncio.sleep(0.05)
            held.set_result(None)

        if when == "before it starts":
            never = asyncio.create_task(waves.gather(doomed()))
            await asyncio.sleep(0)
            never.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await never
        axeman = asyncio.create_task(axe())
        parties = [stays(held), slow()]
        if when != "before it starts":
            parties.insert(0, watch(doomed()))

        async def enter(coroutine):
            async with waves.party():
                return await coroutine

        results = await asyncio.gather(*map(enter, parties), return_exceptions=True)
        await axeman
        return results

    assert "done" in run(main())
    assert inner.batches[-1] == ["s/1"]
    assert not waves._live
    assert not waves._parked


def test_gather_cancels_the_others_when_one_raises():
    waves, ended = Waves(Recorder()), []

    async def waits():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def raises():
        await waves.generate([])

    async def fails():
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run(waves.gather(waits(), raises(), fails()))
    assert ended == [True]
    assert not waves._live


def test_a_failing_sampler_fails_every_party_of_the_wave_and_none_hangs():
    waves = Waves(Recorder(fail=True))

    async def party():
        async with waves.party():
            await waves.generate([request("a")])

    async def main():
        return await asyncio.gather(party(), party(), return_exceptions=True)

    assert [str(error) for error in run(main())] == ["device lost"] * 2


def test_outside_a_party_a_call_is_its_own_wave():
    inner = Recorder()
    waves = Waves(inner)
    run(waves.generate([request("b"), request("a")]))
    assert inner.batches == [["a", "b"]]


def test_two_calls_at_once_of_one_party_are_refused():
    waves = Waves(Recorder())

    async def main():
        async with waves.party():
            await asyncio.gather(waves.generate([request("a")]), waves.generate([request("b")]))

    with pytest.raises(RuntimeError, match="twice at once"):
        run(main())


def test_update_comes_after_due_releases():
    inner = Recorder()
    waves = Waves(inner)

    async def main():
        async with waves.party():
            waves.release("b")
            waves.release("a")
            waves.update(None, 3)

    run(main())
    assert inner.calls == ["release a", "release b", "update 3"]
