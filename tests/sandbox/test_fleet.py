"""A fleet over a local cluster of Ray: same results as one host, also when a node is killed."""

import asyncio

import pytest
import ray
from ray.cluster_utils import Cluster
from sandbox_helpers import check_healthy, descendants

from spade_jax import config
from spade_jax.environments import interface
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.fleet import EnvironmentFleet
from spade_jax.sandbox.host import EnvironmentHost

SETTINGS = config.Sandbox(instances=128, step_timeout=30.0, open_timeout=30.0)
EPISODES = 200
SOURCES = list(interface.examples().values())


@pytest.fixture
def cluster():
    before = descendants()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()
    assert not {pid for pid in descendants() - before if _is_zygote(pid)}


def _is_zygote(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"spade_jax.sandbox" in file.read()


async def episode(host, index: int, pause: asyncio.Event | None = None) -> list:
    """All observations and rewards of one episode; halfway it waits for ``pause``."""
    handle = await host.open(SOURCES[index % len(SOURCES)], max_turns=25)
    seen = [await host.reset(handle, index)]
    actions = ["\\boxed{100}", "\\boxed{east}", *await host.solution(handle)]
    for turn, action in enumerate(actions):
        if turn == 1 and pause is not None:
            await pause.wait()
        result = await host.step(handle, action)
        seen.append(result)
        if result.terminated or result.truncated:
            break
    await host.close(handle)
    return seen


def test_a_killed_node_changes_no_episode(cluster):
    cluster, nodes = cluster

    async def alone():
        async with EnvironmentHost(SETTINGS) as host:
            return await asyncio.gather(*(episode(host, index) for index in range(EPISODES)))

    async def together():
        async with EnvironmentFleet(SETTINGS) as fleet:
            pause = asyncio.Event()
            tasks = [asyncio.create_task(episode(fleet, n, pause)) for n in range(EPISODES)]
            while sum(node.load for node in fleet._nodes.values()) < EPISODES:
                await asyncio.sleep(0.05)
            loads = [node.load for node in fleet._nodes.values()]
            assert len(loads) == 3
            assert max(loads) - min(loads) <= 1
            cluster.remove_node(nodes[0], allow_graceful=False)
            pause.set()
            results = await asyncio.gather(*tasks)
            assert len(fleet._nodes) == 2
            cluster.add_node(num_cpus=1)
            await fleet.refresh()
            assert len(fleet._nodes) == 3
            await check_healthy(fleet)
            with pytest.raises(EnvironmentFault, match="ZeroDivisionError"):
                await fleet.open("1 / 0")
            with pytest.raises(HostFault, match="no environment is open"):
                await fleet.reset(10**6, 0)
            return results

    expected = asyncio.run(alone())
    assert asyncio.run(together()) == expected
