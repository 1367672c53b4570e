"""How the throughput of a fleet grows with its nodes, on one machine.

    python tests/perf/fleet.py --json fleet.json

Each node of a local Ray cluster has its zygote, and so all its children, held to a core of its
own: as many nodes as cores are asked for, at most. Ray and the caller run on the same cores, which
real nodes would not share.
"""

import argparse
import asyncio
import os
import pathlib
import time

import figures
import ray
from ray.cluster_utils import Cluster
from sandbox import SOURCE, tree

from spade_jax import config
from spade_jax.sandbox.fleet import EnvironmentFleet

STEPS = 4
AT_ONCE = 8  # episodes under way on each node


def zygotes() -> list[int]:
    """The processes below this one that fork environments, oldest first."""
    found = []
    for pid in sorted(tree()):
        if b"spade_jax.sandbox" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


async def episodes_per_second(nodes: int, count: int) -> float:
    """Whole episodes: opened, reset, four steps, closed."""
    settings = config.Sandbox(instances=64, open_timeout=60.0, step_timeout=60.0)
    async with EnvironmentFleet(settings) as fleet:
        pids = zygotes()
        cores = sorted(os.sched_getaffinity(0))
        for place, pid in enumerate(pids):  # each host has two: the keeper and the zygote
            os.sched_setaffinity(pid, {cores[place * nodes // len(pids)]})

        async def worker(share: int) -> None:
            for seed in range(share):
                handle = await fleet.open(SOURCE)
                await fleet.reset(handle, seed)
                for _ in range(STEPS):
                    await fleet.step(handle, "\\boxed{1}")
                await fleet.close(handle)

        await worker(8)
        workers = AT_ONCE * nodes
        start = time.perf_counter()
        await asyncio.gather(*(worker(count // workers) for _ in range(workers)))
        return count // workers * workers / (time.perf_counter() - start)


def measure(nodes: int, count: int) -> float:
    """The same on a fresh cluster of ``nodes``."""
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        return asyncio.run(episodes_per_second(nodes, count))
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    """Prints the figures and writes them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="file to write the figures to")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of each cluster")
    arguments = parser.parse_args()
    about = figures.conditions(episodes=arguments.episodes)
    rates = [measure(nodes + 1, arguments.episodes) for nodes in range(about["cores"])]
    beside = about | {"theirs": "the same on one node"}
    table = {
        f"episodes_per_second_{nodes}_nodes": figures.rate(
            rate, rates[0], "1/s", beside | {"nodes": nodes}
        )
        for nodes, rate in enumerate(rates, start=1)
    }
    figures.write(table, arguments.json)


if __name__ == "__main__":
    main()
