"""Nothing passes from one instance to another, and nothing tells an instance which arm it is in."""

import asyncio

from sandbox_helpers import HEALTHY

# Each leaves a mark wherever it can and reports the marks of others that it finds.
MARKS = """
import builtins, gc, json, os, random, re, string, sys, threading, typing


def marks():
    found = []
    for place in (builtins, json, os, random, re, string, sys, threading, typing):
        if hasattr(place, "spade_mark"):
            found.append(place.__name__)
        place.spade_mark = True
    if getattr(MarkEnv, "count", 0):
        found.append("class")
    MarkEnv.count = 1
    if "spade_mark" in sys.modules:
        found.append("modules")
    sys.modules["spade_mark"] = sys
    if "spade_mark" in os.environ:
        found.append("environ")
    os.environ["spade_mark"] = "1"
    for item in gc.get_objects():
        if type(item) is dict and "spade_heap" in item:
            found.append("heap")
    gc.spade_keep = {"spade_heap": 1}
    random.seed(99)
    return found


class MarkEnv:
    def reset(self, seed=None):
        return f"{random.random()}", {}

    def step(self, action):
        return ",".join(marks()) or "clean", 1.0, True, False, {}
"""
# All that an instance can see of its surroundings but the clock, the randomness and its pid.
SURROUNDINGS = """
import os, sys, resource, signal, threading


class LookEnv:
    def reset(self, seed=None):
        seen = {
            "arguments": sys.argv,
            "environment": dict(os.environ),
            "path": sys.path,
            "modules": len(sys.modules),
            "threads": threading.active_count(),
            "parent": os.getppid(),
            "flags": str(sys.flags),
            "limit": sys.getrecursionlimit(),
            "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "frames": [],
        }
        frame = sys._getframe()
        while frame:
            kinds = {name: type(value).__name__ for name, value in frame.f_locals.items()}
            seen["frames"].append((frame.f_code.co_name, kinds))
            frame = frame.f_back
        return repr(seen), {}

    def step(self, action):
        return "done", 1.0, True, False, {}
"""


def test_no_mark_of_one_instance_is_seen_by_another(sandboxed):
    async def body(host):
        first = await host.open(MARKS)
        start = await host.reset(first, 1)
        assert (await host.step(first, "x")).observation == "clean"
        assert "class" in (await host.step(first, "x")).observation
        second = await host.open(MARKS)
        assert await host.reset(second, 1) == start
        assert (await host.step(second, "x")).observation == "clean"
        await host.close(first)
        await host.close(second)
        third = await host.open(MARKS)
        assert (await host.step(third, "x")).observation == "clean"
        await host.close(third)

    sandboxed(body)


def test_instances_cannot_tell_what_they_are_for(sandboxed):
    """The plain and the hinted play of an instance, and the tenth and the first, look alike."""

    async def body(host):
        seen = []
        for _ in range(10):
            handle = await host.open(SURROUNDINGS, max_turns=25)
            seen.append(await host.reset(handle, 4))
            await host.close(handle)
        handles = await asyncio.gather(*(host.open(SURROUNDINGS, max_turns=25) for _ in range(10)))
        seen += await asyncio.gather(*(host.reset(handle, 4) for handle in handles))
        await asyncio.gather(*(host.close(handle) for handle in handles))
        assert set(seen) == {seen[0]}
        assert "'environment': {}" in seen[0]

    sandboxed(body)


def test_a_crash_of_many_leaves_the_others_playing(sandboxed):
    crash = HEALTHY.replace("self.turn += 1", "__import__('os')._exit(1)")

    async def body(host):
        async def episode(index):
            handle = await host.open(crash if index % 2 else HEALTHY)
            await host.reset(handle, index)
            outcome = await asyncio.gather(host.step(handle, "x"), return_exceptions=True)
            await host.close(handle)
            return getattr(outcome[0], "kind", "played")

        outcomes = await asyncio.gather(*(episode(index) for index in range(60)))
        assert outcomes == ["played", "died"] * 30

    sandboxed(body)
