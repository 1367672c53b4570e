"""Random programs, bred from valid environments: each is played or faults, the host goes on."""

import asyncio
import collections
import random
import re

import pytest
from sandbox_helpers import check_healthy, descendants, descriptors

from spade_jax import config
from spade_jax.environments import interface
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost

TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
SOURCES = list(interface.examples().values())
AT_ONCE = 16


def mutant(source: random.Random) -> str:
    """One to eight tokens of an example removed, doubled, exchanged or replaced by others."""
    tokens = TOKEN.findall(source.choice(SOURCES))
    donor = TOKEN.findall(source.choice(SOURCES))
    for _ in range(source.randint(1, 8)):
        place = source.randrange(len(tokens))
        kind = source.randrange(5)
        if kind == 0:
            tokens[place] = ""
        elif kind == 1:
            tokens[place] *= 2
        elif kind == 2:
            other = source.randrange(len(tokens))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind == 3:
            tokens[place] = source.choice(donor)
        elif tokens[place].isdigit():
            tokens[place] = str(source.choice([0, -1, 10**9, 10**30]))
    return "".join(tokens)


async def fate(host: EnvironmentHost, program: str) -> str:
    """'played', or the kind of its fault."""
    handle = None
    try:
        handle = await host.open(program, max_turns=10)
        await host.reset(handle, 1)
        for action in ("\\boxed{1}", "\\boxed{north}", "x", "\\boxed{012}"):
            await host.step(handle, action)
        await host.solution(handle)
    except EnvironmentFault as fault:
        return fault.kind
    finally:
        if handle is not None:
            await host.close(handle)
    return "played"


@pytest.mark.parametrize(
    "count", [300, pytest.param(10000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_mutants(count):
    before = descriptors(), descendants()
    fates: collections.Counter[str] = collections.Counter()

    async def main():
        async with EnvironmentHost(config.Sandbox(step_timeout=1.0, open_timeout=1.0)) as host:
            resting = descriptors(), descendants()

            async def breed(worker):
                source = random.Random(worker)
                for _ in range(count // AT_ONCE):
                    fates[await fate(host, mutant(source))] += 1

            await asyncio.gather(*(breed(worker) for worker in range(AT_ONCE)))
            await check_healthy(host)
            assert (descriptors(), descendants()) == resting

    asyncio.run(main())
    assert sum(fates.values()) == count // AT_ONCE * AT_ONCE
    assert fates["played"] > count // 20
    assert {"syntax", "raised"} < set(fates)
    assert (descriptors(), descendants()) == before
