"""How the throughput of a fleet grows with its nodes, on one machine.

    python tests/perf/fleet.py --json fleet.json

Each node of a local Ray cluster has its zygote, and so all its children, held to a core of its
own: as many nodes as cores are asked for, at most. Ray and the caller run on the same cores, which
real nodes would not share.
"""

import argparse
import asyncio
import json
import os
import pathlib
import time

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
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of each cluster")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rates = {nodes: measure(nodes, arguments.episodes) for nodes in range(1, cores + 1)}
    figures = {
        "conditions": {"cores": cores, "load": os.getloadavg()[0], "episodes": arguments.episodes},
        "episodes_per_second_by_nodes": rates,
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
