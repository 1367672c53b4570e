"""A healthy environment, and what this process holds open, for the sandbox tests."""

import contextlib
import dataclasses
import os
import pathlib

PATIENT = {"open_timeout": 60.0, "step_timeout": 60.0}
HEALTHY = """
class HealthyEnv:
    def __init__(self, max_turns=5):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        self.number = random.randint(0, 10**9)
        self.turn = 0
        return f"seed {seed} number {self.number}", {}

    def step(self, action):
        self.turn += 1
        right = action == str(self.number)
        return f"turn {self.turn}: {action}", float(right), right, self.turn >= self.max_turns, {}

    def solution(self):
        return [str(self.number)]
"""


def descriptors() -> set[str]:
    """What this process holds open, sockets and pipes by their kind only."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}").split("[")[0])
        except FileNotFoundError:
            continue
    return set(names) | {str(len(names))}


def descendants() -> set[int]:
    """Ids of all processes below this one."""
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for thread in pathlib.Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                children = [int(pid) for pid in thread.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.update(children)
            waiting += children
    return found


@contextlib.contextmanager
def hasty(host, seconds: float = 0.4):
    """Instances opened meanwhile have so long for each call.

    All others keep the patience of their host: on a busy machine the healthy must not be late.
    """
    patient = host._settings
    host._settings = dataclasses.replace(patient, open_timeout=seconds, step_timeout=seconds)
    try:
        yield
    finally:
        host._settings = patient


async def check_healthy(host) -> None:
    """The host opens, plays and closes an environment as it should."""
    handle = await host.open(HEALTHY)
    assert (await host.reset(handle, 3)).startswith("seed 3 number ")
    (number,) = await host.solution(handle)
    result = await host.step(handle, number)
    assert (result.reward, result.terminated) == (1.0, True)
    await host.close(handle)
