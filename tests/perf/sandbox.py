"""Speed of the sandbox, beside what one would take instead.

    python tests/perf/sandbox.py --json sandbox.json

Runs three attacks first, with the same settings, and stops if one of them succeeds. Processor time
is that of all processes together (host, zygote, children), so that figures per core hold on a
machine that others use too; wall times do not.
"""

import argparse
import asyncio
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

from spade_jax import config
from spade_jax.environments import interface
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost

SOURCE = interface.examples()["number_guessing"]
TRIVIAL = """
class TrivialEnv:
    def reset(self, seed=None):
        return "start", {}
    def step(self, action):
        return "next", 0.0, False, False, {}
"""
SPINNING = TRIVIAL.replace('return "next"', 'while True: pass\n        return "next"')
ATTACKS = ("reads_passwords", "tcp_connection", "fork")
TICK = os.sysconf("SC_CLK_TCK")
EPISODE = (
    "import json, sys; request = json.load(sys.stdin); names = {}; exec(request['source'], names); "
    "kind = next(v for k, v in names.items() if k.endswith('Env')); "
    "json.dump(kind().reset(seed=request['seed']), sys.stdout)"
)


def tree() -> dict[int, list[str]]:
    """Fields of /proc/PID/stat, from the state on, of this process and all below it."""
    fields, parents = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields[int(entry.name)] = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(entry.name)] = int(fields[int(entry.name)][1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: fields[pid] for pid in found}


def processor_seconds() -> float:
    """Used so far by this process, its descendants, and those of theirs that are reaped."""
    return sum(sum(map(int, fields[11:15])) for fields in tree().values()) / TICK


def memory_bytes() -> int:
    """Proportional share of memory of all descendants."""
    total = 0
    for pid in set(tree()) - {os.getpid()}:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


async def opens(host: EnvironmentHost, count: int, at_once: int) -> tuple[float, float]:
    """Episodes opened, reset and closed, per processor second and per second."""

    async def worker(share: int) -> None:
        for seed in range(share):
            handle = await host.open(SOURCE)
            await host.reset(handle, seed)
            await host.close(handle)

    wall, used = time.perf_counter(), processor_seconds()
    await asyncio.gather(*(worker(count // at_once) for _ in range(at_once)))
    return count / (processor_seconds() - used), count / (time.perf_counter() - wall)


async def steps(host: EnvironmentHost, count: int) -> list[float]:
    """Seconds of each round trip, sorted."""
    handle = await host.open(TRIVIAL)
    await host.reset(handle, 0)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await host.step(handle, "\\boxed{1}")
        times.append(time.perf_counter() - start)
    await host.close(handle)
    return sorted(times)


async def kills(host: EnvironmentHost, count: int) -> float:
    """Median seconds to kill and reap a child that spins."""
    times = []
    for _ in range(count):
        handle = await host.open(SPINNING)
        await host.reset(handle, 0)
        call = asyncio.create_task(host.step(handle, "x"))
        await asyncio.sleep(0.02)
        start = time.perf_counter()
        await host.close(handle)
        times.append(time.perf_counter() - start)
        await asyncio.gather(call, return_exceptions=True)
    return statistics.median(times)


async def attacks(host: EnvironmentHost) -> None:
    """Raises if one of three attacks succeeds."""
    folder = pathlib.Path(__file__).parent.parent / "sandbox" / "attacks"
    for name in ATTACKS:
        handle = await host.open((folder / f"{name}.py").read_text())
        await host.reset(handle, 0)
        try:
            await host.step(handle, "x")
        except EnvironmentFault as fault:
            if "PermissionError" not in fault.reason:
                raise
        else:
            raise SystemExit(f"attack {name} succeeded; figures of a leaky sandbox mean nothing")
        finally:
            await host.close(handle)


def fresh_interpreters(count: int) -> float:
    """Episodes per processor second with a new Python for each."""
    used = processor_seconds()
    for seed in range(count):
        request = json.dumps({"source": SOURCE, "seed": seed})
        command = [sys.executable, "-I", "-S", "-c", EPISODE]
        subprocess.run(command, input=request, text=True, capture_output=True, check=True)
    return count / (processor_seconds() - used)


def one_episode(connection: multiprocessing.connection.Connection) -> None:
    """What a multiprocessing worker does: the same work, with no confinement."""
    source, seed = connection.recv()
    names: dict = {}
    exec(source, names)
    kind = next(value for name, value in names.items() if name.endswith("Env"))
    connection.send(kind().reset(seed=seed))


def multiprocessing_workers(count: int) -> float:
    """Episodes per processor second with a process of ``multiprocessing`` for each."""
    context = multiprocessing.get_context("fork")
    used = processor_seconds()
    for seed in range(count):
        ours, theirs = context.Pipe()
        worker = context.Process(target=one_episode, args=(theirs,))
        worker.start()
        ours.send((SOURCE, seed))
        ours.recv()
        worker.join()
    return count / (processor_seconds() - used)


async def measure(arguments: argparse.Namespace) -> dict:
    """All figures of the sandbox and the conditions they hold under."""
    settings = config.Sandbox(
        instances=max(arguments.instances, 64),
        open_timeout=60.0,
        step_timeout=60.0,
    )
    async with EnvironmentHost(settings) as host:
        await attacks(host)
        await opens(host, 20, 1)
        cores = os.cpu_count() or 1
        per_core, per_second = await opens(host, arguments.opens, 2 * cores)
        times = await steps(host, arguments.steps)
        killed = await kills(host, 20)
        handles = await asyncio.gather(*(host.open(SOURCE) for _ in range(arguments.instances)))
        memory = memory_bytes()
        await asyncio.gather(*(host.close(handle) for handle in handles))
        tier = host.report.tier
    apart = dataclasses.replace(settings, own_namespaces=True)
    async with EnvironmentHost(apart) as host:
        apart_per_core, _ = await opens(host, arguments.opens // 4, 2 * cores)
    return {
        "conditions": {
            "tier": tier,
            "cores": cores,
            "machine": platform.machine(),
            "python": platform.python_version(),
            "load": os.getloadavg()[0],
            "instances": arguments.instances,
        },
        "opens_per_second_per_core": per_core,
        "opens_per_second": per_second,
        "opens_per_second_per_core_own_namespaces": apart_per_core,
        "step_median_us": 1e6 * statistics.median(times),
        "step_p99_us": 1e6 * times[int(0.99 * len(times))],
        "kill_and_reap_ms": 1e3 * killed,
        "open_instances_memory_gib": memory / 2**30,
    }


def main() -> None:
    """Prints the figures and writes them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--opens", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--instances", type=int, default=2000)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments))
    figures["fresh_interpreter_per_second_per_core"] = fresh_interpreters(30)
    figures["multiprocessing_per_second_per_core"] = multiprocessing_workers(100)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
