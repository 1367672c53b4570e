"""A healthy environment, and what this process holds open, for the sandbox tests."""

import os
import pathlib

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
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while True:
        more = {pid for pid, parent in parents.items() if parent in found | {os.getpid()}} - found
        if not more:
            return found
        found |= more


async def check_healthy(host) -> None:
    """The host opens, plays and closes an environment as it should."""
    handle = await host.open(HEALTHY)
    assert (await host.reset(handle, 3)).startswith("seed 3 number ")
    (number,) = await host.solution(handle)
    result = await host.step(handle, number)
    assert (result.reward, result.terminated) == (1.0, True)
    await host.close(handle)
