"""Same source, seed and actions: same observations and rewards, whatever else goes on."""

import asyncio
import random

from spade_jax import config
from spade_jax.environments import interface
from spade_jax.sandbox.host import EnvironmentHost

# Uses the global generator, the order of a set of texts and dictionaries of objects.
ORDERED = """
class OrderEnv:
    def __init__(self, max_turns=6):
        self.start = random.random()
        self.words = {"".join(random.choices(string.ascii_letters, k=5)) for _ in range(50)}
        self.reset()

    def reset(self, seed=None):
        self.draws = [random.gauss(0, 1) for _ in range(3)]
        random.shuffle(self.draws)
        return f"{self.start} {list(self.words)} {hash('text')} {self.draws}", {}

    def step(self, action):
        return f"{random.randint(0, 10**9)} {action}", random.random(), False, False, {}
"""
SOURCES = {"ordered": ORDERED, **interface.examples()}
ACTIONS = ["\\boxed{100}", "\\boxed{north}", "\\boxed{east}", "\\boxed{012}", "nothing"]


async def play_all(host: EnvironmentHost, order: list[tuple[str, int]], at_once: bool) -> dict:
    async def one(name, seed):
        handle = await host.open(SOURCES[name], max_turns=25)
        played = await host.play(handle, seed, ACTIONS)
        await host.close(handle)
        return (name, seed), played

    if at_once:
        return dict(await asyncio.gather(*(one(*each) for each in order)))
    return dict([await one(*each) for each in order])


def test_hosts_and_orders_agree():
    instances = [(name, seed) for name in SOURCES for seed in range(8)]
    shuffled = random.Random(3).sample(instances, len(instances))

    async def main(order, at_once):
        async with EnvironmentHost(config.Sandbox()) as host:
            return await play_all(host, order, at_once)

    first = asyncio.run(main(instances, False))
    second = asyncio.run(main(shuffled, True))
    assert first == second
    assert len({str(first["ordered", seed]) for seed in range(8)}) == 8


def test_resets_in_one_child_equal_those_of_fresh_ones(sandboxed):
    async def body(host):
        for source in SOURCES.values():
            used = await host.open(source)
            for seed in (5, 2, 5, 0):
                fresh = await host.open(source)
                assert await host.play(used, seed, ACTIONS) == await host.play(fresh, seed, ACTIONS)
                await host.close(fresh)
            await host.close(used)

    sandboxed(body)


def test_steps_one_by_one_equal_a_play_in_one_message(sandboxed):
    async def body(host):
        for source in SOURCES.values():
            handle = await host.open(source)
            observation, results = await host.play(handle, 9, ACTIONS)
            assert await host.reset(handle, 9) == observation
            for action, result in zip(ACTIONS, results, strict=False):
                assert await host.step(handle, action) == result
            await host.close(handle)

    sandboxed(body)


def test_seeds_of_any_size_are_told_apart(sandboxed):
    async def body(host):
        handle = await host.open(ORDERED)
        seen = {await host.reset(handle, seed) for seed in (0, 1, 2**31, 2**63, 2**64 + 1)}
        assert len(seen) == 5
        await host.close(handle)

    sandboxed(body)


# The order of a set of objects follows their addresses.
ADDRESSED = """
class Thing:
    def __init__(self, number):
        self.number = number


class AddressEnv:
    def reset(self, seed=None):
        return str([thing.number for thing in {Thing(number) for number in range(8)}]), {}
"""


def test_dependence_on_addresses_shows(sandboxed):
    async def body(host):
        orders = set()
        for _ in range(16):
            handle = await host.open(ADDRESSED)
            orders.add(await host.reset(handle, 1))
            await host.close(handle)
        assert len(orders) > 2

    sandboxed(body)
