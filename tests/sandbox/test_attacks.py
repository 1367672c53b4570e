"""Every file in attacks/ hurts itself at most: the outcome its header states, nothing beyond.

A header has the lines ``Kind``, ``Outcome`` (fault kinds, or 'harmless'; words that follow must
stand in the fault's reason, so that a slip in an attack cannot pass for a defence) and, for raw
system calls, ``Machine``.
"""

import asyncio
import contextlib
import glob
import os
import pathlib
import platform

import pytest
from sandbox_helpers import HEALTHY, PATIENT, check_healthy, descendants, descriptors, hasty

from spade_jax import config
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost

ATTACKS = sorted((pathlib.Path(__file__).parent / "attacks").glob("*.py"))
KINDS = {
    "processor", "memory", "output", "disk", "processes", "signals", "network", "files",
    "neighbours", "channel", "interpreter", "privileges", "teardown", "reward",
}  # fmt: skip
FAULTS = {"syntax", "raised", "timeout", "memory", "died", "malformed", "too_large", "missing"}
STEPS = 4
SETTINGS = config.Sandbox(**PATIENT, message_bytes=65536)
AT_ONCE = 8


class Arena:
    """One host for all attacks, and a neighbour that is played while each of them runs."""

    def __init__(self):
        self.runner = asyncio.Runner()
        self.before = descriptors(), descendants()
        self.host = EnvironmentHost(SETTINGS)
        self.runner.run(self.host.__aenter__())
        self.neighbour, self.first = self.runner.run(self._seat_neighbour())
        self.resting = descriptors(), descendants()

    async def _seat_neighbour(self):
        neighbour = await self.host.open(HEALTHY)
        return neighbour, await self.host.reset(neighbour, 5)

    def close(self):
        self.runner.run(self.host.aclose())
        self.runner.close()
        assert (descriptors(), descendants()) == self.before


def memory_of(pid) -> int:
    """Resident memory in KiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.fixture(scope="module")
def arena():
    arena = Arena()
    yield arena
    arena.close()


def header(path: pathlib.Path) -> dict[str, str]:
    lines = (line[2:].split(": ", 1) for line in path.read_text().splitlines() if line[:2] == "# ")
    return dict(lines)


def kinds_of(path: pathlib.Path) -> set[str]:
    """The fault kinds, or 'harmless', that the header allows."""
    return set(header(path)["Outcome"].split()) & (FAULTS | {"harmless"})


async def play(host: EnvironmentHost, path: pathlib.Path) -> EnvironmentFault | None:
    handle = None
    haste = hasty(host) if "timeout" in kinds_of(path) else contextlib.nullcontext()
    try:
        with haste:
            handle = await host.open(path.read_text())
        await host.reset(handle, 0)
        for _ in range(STEPS):
            if (await host.step(handle, "x")).terminated:
                break
        # The process may still do something behind our back before it is closed.
        await asyncio.sleep(0.01)
    except EnvironmentFault as fault:
        return fault
    finally:
        if handle is not None:
            await host.close(handle)
    return None


@pytest.mark.parametrize("path", ATTACKS, ids=lambda path: path.stem)
def test_attack_hurts_only_itself(arena, path):
    facts = header(path)
    if facts.get("Machine", platform.machine()) != platform.machine():
        pytest.skip(f"its system-call numbers are those of {facts['Machine']}")

    async def attack_beside_neighbour():
        task = asyncio.create_task(play(arena.host, path))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.05)
        assert await arena.host.reset(arena.neighbour, 5) == arena.first
        fault = await task
        assert (await arena.host.step(arena.neighbour, "hello")).observation == "turn 1: hello"
        await check_healthy(arena.host)
        return fault

    fault = arena.runner.run(attack_beside_neighbour())
    kinds = kinds_of(path)
    reasons = set(facts["Outcome"].split()) - kinds
    assert (fault.kind if fault else "harmless") in kinds, fault
    if fault and reasons:
        assert any(reason in fault.reason for reason in reasons), fault
    assert (descriptors(), descendants()) == arena.resting
    places = ("/tmp", "/dev/shm", "/etc", "/", os.curdir, "/dev/mqueue")
    assert not [file for place in places for file in glob.glob(f"{place}/*spade-attack*")]


def test_memory_of_host_and_zygote_has_not_grown(arena):
    """Runs after the attacks: what they left would add up."""

    async def many():
        for _ in range(100):
            await check_healthy(arena.host)

    processes = ["self", *descendants()]
    arena.runner.run(many())
    before = [memory_of(pid) for pid in processes]
    quick = [path for path in ATTACKS if "timeout" not in kinds_of(path)]

    async def again():
        for start in range(0, len(quick), AT_ONCE):
            await asyncio.gather(*(play(arena.host, path) for path in quick[start:][:AT_ONCE]))

    arena.runner.run(again())
    after = [memory_of(pid) for pid in processes]
    assert all(late <= early + 2048 for early, late in zip(before, after, strict=True)), after


def test_the_attacks_cover_every_kind():
    assert {header(path)["Kind"] for path in ATTACKS} == KINDS
    assert len(ATTACKS) >= 60
