"""Speed of the sandbox, beside what one would take instead.

    python tests/perf/sandbox.py --json sandbox.json

Runs three attacks first, with the same settings, and stops if one of them succeeds. Processor time
is that of all processes together (host, zygote, children), so that figures per core hold on a
machine that others use too; wall times do not. All but ``..._across_cores`` is measured with
everything, competitors too, held to one core: elsewhere the time that a sleeping core takes to wake
is counted too.
"""

import argparse
import asyncio
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import figures

from spade_jax import config
from spade_jax.environments import interface
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.process import INTERPRETER_FLAGS

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
ROUNDS = 5
AT_ONCE = 4  # episodes opened side by side on a core
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


def fork_floor(count: int) -> dict[str, float]:
    """What fork_floor.py prints."""
    program = pathlib.Path(__file__).with_name("fork_floor.py")
    root = str(pathlib.Path(__file__).parent.parent.parent)
    start = (
        f"import sys, runpy; sys.path.insert(0, {root!r}); from spade_jax.sandbox import pages; "
        f"pages.gather(); runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    command = [sys.executable, *INTERPRETER_FLAGS, "-c", start, str(count)]
    environment = {"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"}
    done = subprocess.run(
        command, input=SOURCE, text=True, capture_output=True, check=True, env=environment
    )
    return json.loads(done.stdout)


async def echoes(count: int) -> list[float]:
    """Seconds of each round trip of a few bytes to a bare process and back, sorted."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        while piece := theirs.recv(4096):
            theirs.send(piece)
        os._exit(0)
    theirs.close()
    ours.setblocking(False)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await loop.sock_sendall(ours, b"x" * 40)
        await loop.sock_recv(ours, 4096)
        times.append(time.perf_counter() - start)
    ours.close()
    os.waitpid(pid, 0)
    return sorted(times)


def table(measured: dict[str, Any], about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures, each beside the goal or a competitor of the same run."""
    opened, across = measured["opens"], measured["across_cores"]
    median, late = (
        1e6 * measured["steps"][int(part * len(measured["steps"]))] for part in (0.5, 0.99)
    )
    ours_of_all = 1e6 * statistics.median(across["steps"])
    per_core = "1/s per core"
    goals = about | {"theirs": "the goal"}

    def beside(what: str) -> dict[str, Any]:
        return about | {"theirs": what}

    unconfined = beside(
        "fork, compile, reset, end of the zygote's modules: no layer, host or message"
    )
    return {
        "opens_per_second_per_core": figures.rate(opened, 400, per_core, goals),
        "opens_per_second_per_core_own_namespaces": figures.rate(
            measured["apart"], 400, per_core, goals | {"tier": measured["apart_tier"]}
        ),
        "opens_beside_multiprocessing": figures.rate(
            opened, measured["multiprocessing"], per_core, beside("a multiprocessing.Process each")
        ),
        "opens_beside_fresh_interpreter": figures.rate(
            opened, measured["interpreter"], per_core, beside("python -I -S each")
        ),
        "opens_beside_floor": figures.rate(
            opened,
            1 / measured["episode"],
            per_core,
            unconfined
            | {"page_faults": measured["faults"], "bare_fork_us": 1e6 * measured["bare"]},
        ),
        "opens_per_second_across_cores": figures.rate(
            across["opens"], None, "1/s", about | {"cores": measured["cores"]}
        ),
        "step_median": figures.cost(median, 50, "us", goals),
        "step_p99": figures.cost(late, 1000, "us", goals),
        "step_median_across_cores": figures.cost(
            ours_of_all,
            1e6 * statistics.median(across["echoes"]),
            "us",
            beside("40 bytes echoed by a bare process") | {"cores": measured["cores"]},
        ),
        "kill_and_reap": figures.cost(1e3 * measured["killed"], 10, "ms", goals),
        "open_instances_memory": figures.cost(measured["memory"] / 2**30, 8, "GiB", goals),
    }


async def in_turn(host: EnvironmentHost, count: int) -> dict[str, Any]:
    """Ours and what one would take instead, by turns, so that all meet the same neighbours."""
    rounds = [
        {
            "opens": (await opens(host, count, AT_ONCE))[0],
            "multiprocessing": multiprocessing_workers(count // 5),
            "interpreter": fresh_interpreters(count // 20),
        }
        | fork_floor(count // 2)
        for _ in range(ROUNDS)
    ]
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


async def alone(settings: config.Sandbox, arguments: argparse.Namespace) -> dict[str, Any]:
    """What is measured on one core."""
    async with EnvironmentHost(settings) as host:
        await attacks(host)
        await opens(host, 20, 1)
        measured: dict[str, Any] = await in_turn(host, arguments.opens // ROUNDS) | {
            "tier": host.report.tier,
            "steps": await steps(host, arguments.steps),
            "killed": await kills(host, 20),
        }
        handles = await asyncio.gather(*(host.open(SOURCE) for _ in range(arguments.instances)))
        measured["memory"] = memory_bytes()
        await asyncio.gather(*(host.close(handle) for handle in handles))
    async with EnvironmentHost(dataclasses.replace(settings, own_namespaces=True)) as host:
        await opens(host, 20, 1)
        measured["apart_tier"] = host.report.tier
        measured["apart"] = (await opens(host, arguments.opens // 4, AT_ONCE))[0]
    return measured


async def together(settings: config.Sandbox, arguments: argparse.Namespace) -> dict[str, Any]:
    """What is measured on all cores."""
    async with EnvironmentHost(settings) as host:
        await opens(host, 20, 1)
        at_once = AT_ONCE * (os.cpu_count() or 1)
        _, rate = await opens(host, arguments.opens // at_once * at_once, at_once)
        return {
            "opens": rate,
            "steps": await steps(host, arguments.steps),
            "echoes": await echoes(arguments.steps),
        }


def main() -> None:
    """Prints the figures and writes them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="file to write the figures to")
    parser.add_argument("--opens", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--instances", type=int, default=2000)
    arguments = parser.parse_args()
    settings = config.Sandbox(
        instances=max(arguments.instances, 64), open_timeout=60.0, step_timeout=60.0
    )
    cores = os.sched_getaffinity(0)
    across = asyncio.run(together(settings, arguments))
    os.sched_setaffinity(0, {max(cores)})
    measured = asyncio.run(alone(settings, arguments))
    measured |= {"across_cores": across, "cores": len(cores)}
    about = figures.conditions(tier=measured["tier"], instances=arguments.instances)
    figures.write(table(measured, about), arguments.json)


if __name__ == "__main__":
    main()
