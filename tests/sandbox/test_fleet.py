"""A fleet over a local cluster of Ray: same results as one host, also when a node is killed."""

import asyncio
import contextlib
import dataclasses

import pytest
import ray
from ray_cluster import patient_cluster
from sandbox_helpers import check_healthy, descendants

from spade_jax import config
from spade_jax.environments import interface, tools, validation
from spade_jax.sandbox import fleet as fleets
from spade_jax.sandbox import placement
from spade_jax.sandbox.faults import EnvironmentFault, HostFault, NoHost
from spade_jax.sandbox.fleet import EnvironmentFleet
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.replies import StepResult

SETTINGS = config.Sandbox(instances=128, step_timeout=30.0, open_timeout=30.0, patience=60.0)
EPISODES = 200
GAMES = list(interface.examples().values())
TOOLS = list(tools.examples().values())
TALKATIVE = """
class TalkativeEnv:
    plays = 0

    def reset(self, seed=None):
        TalkativeEnv.plays += 1
        print("play", self.plays)
        return f"play {self.plays}", {}

    def step(self, action):
        print("heard", action)
        if action == "leave":
            __import__("os")._exit(3)
        if action == "raise":
            raise KeyError("so it does")
        return action, 50 if action == "cheat" else 0.5, False, False, {}
"""
BAD = {
    "syntax": ("games", "class BrokenEnv(\n"),
    "raises": ("games", GAMES[0].replace("def step(self, action", "def step(self")),
    "differs": ("games", TALKATIVE.replace('f"play {self.plays}"', "str(os.urandom(9))")),
    "leaves": ("games", TALKATIVE.replace('action == "leave"', "True")),
    "no environment": ("tools", "x = 1"),
    "no tools": ("tools", "class EmptyEnv(ToolEnv):\n    pass\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    before = descendants()
    with patient_cluster(nodes=2) as cluster:
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
        ray.shutdown()
    assert not {pid for pid in descendants() - before if _is_zygote(pid)}


def _is_zygote(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"spade_jax.sandbox" in file.read()
    return False


def on_both(body, settings=SETTINGS):
    """What a coroutine function over a host gives on this machine, and on the cluster."""

    async def main(fleet):
        address = ray.get_runtime_context().gcs_address if fleet else ""
        chosen = dataclasses.replace(settings, fleet=address)
        async with placement.environment_host(chosen) as host:
            assert isinstance(host, EnvironmentFleet if fleet else EnvironmentHost)
            return await body(host)

    return asyncio.run(main(False)), asyncio.run(main(True))


async def tried(call):
    """The value of a call, or its fault."""
    try:
        return await call
    except EnvironmentFault as fault:
        return fault.kind, fault.reason, fault.output
    except HostFault as fault:
        return str(fault)


def test_validation_gives_the_same_reports(cluster):
    """Of good and of bad environments of both settings; all measurements too."""
    sources = {f"game {n}": ("games", source) for n, source in enumerate(GAMES)}
    sources |= {f"tool {n}": ("tools", source) for n, source in enumerate(TOOLS)} | BAD
    settings = config.Validation()

    async def body(host):
        kinds_and_sources = sources.values()
        reports = [
            validation.validate(host, source, settings, setting=kind)
            for kind, source in kinds_and_sources
        ]
        return dict(zip(sources, await asyncio.gather(*reports), strict=True))

    alone, together = on_both(body)
    assert {
        name for name, report in alone.items() if report.accepted
    } == sources.keys() - BAD.keys()
    for name, report in alone.items():
        if name != "differs":  # by its own luck
            assert together[name] == report, name
        assert together[name].accepted == report.accepted, name


def test_every_call_and_fault_is_the_same(cluster):
    async def body(host):
        seen = []
        handle = await host.open(TALKATIVE, max_turns=2)
        actions = ["one", "two", "raise", "\ud800", "x" * 9000, "cheat", "after"]
        seen += [await tried(host.reset(handle, 1))]
        seen += [await tried(host.step(handle, action)) for action in actions]
        seen += [await tried(host.output(handle)), await tried(host.solution(handle))]
        await host.close(handle)
        await host.close(handle)
        seen += [await tried(host.reset(handle, 2)), await tried(host.open("\ud800"))]
        seen += [await tried(host.open("1 / 0")), await tried(host.open(TALKATIVE, folder=True))]
        handle = await host.open(TALKATIVE)
        seen += [await tried(host.solution(handle))]
        seen += [await tried(host.play(handle, 3, ["a", "b", "leave", "c"]))]
        seen += [await tried(host.play(handle, 3, ["a"])), await tried(host.output(handle))]
        await host.close(handle)
        handle = await host.open(TOOLS[0])
        seen += [await tried(host.reset(handle, 3)), await tried(host.tools(handle))]
        name = seen[-1][0]["function"]["name"]
        deep = []
        for _ in range(5000):
            deep = [deep]
        for arguments in ({}, {"x": float("nan")}, {"x": "\ud800"}, {"x": deep}, {"x": [1, None]}):
            seen += [await tried(host.call(handle, name, arguments))]
        seen += [await tried(host.calls(handle, [(name, {}), (name, {"x": 1})]))]
        seen += [await tried(host.examine(handle)), await tried(host.step(handle, "\\boxed{done}"))]
        await host.close(handle)
        return seen

    alone, together = on_both(body)
    assert sum(isinstance(item, StepResult) for item in alone) >= 4
    kinds = {item[0] for item in alone if isinstance(item, tuple) and len(item) == 3}
    assert kinds >= {"raised", "malformed", "died", "missing"}
    for number, (expected, actual) in enumerate(zip(alone, together, strict=True)):
        if "private folder" in str(expected):  # a fleet says on which node
            assert expected in actual
        else:
            assert actual == expected, number


async def episode(host, index: int, pause: asyncio.Event | None = None) -> list:
    """All observations and rewards of one episode; halfway it waits for ``pause``."""
    handle = await host.open(GAMES[index % len(GAMES)], max_turns=25)
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
            assert len(loads) == 2
            assert max(loads) - min(loads) <= 1
            cluster.kill_node()
            pause.set()
            results = await asyncio.gather(*tasks)
            assert len(fleet._nodes) == 1
            cluster.add_node()
            await fleet.refresh()
            assert len(fleet._nodes) == 2
            await check_healthy(fleet)
            assert {node.load for node in fleet._nodes.values()} == {0}
            return results

    expected = asyncio.run(alone())
    assert asyncio.run(together()) == expected


def test_an_episode_never_goes_on_in_another_ones_place(cluster):
    """A host that ends while its node lives is begun anew, with the same numbers for others."""

    async def main():
        async with EnvironmentFleet(SETTINGS) as fleet:
            mine = await fleet.open(TALKATIVE)
            seen = [await fleet.reset(mine, 1), await fleet.reset(mine, 1)]
            for node in list(fleet._nodes.values()):
                ray.kill(node.actor)
                fleet._lose(node, "as the test has it")
            await fleet.refresh()
            others = [await fleet.open(GAMES[0]) for _ in range(4)]
            # It counts its resets: all of them are replayed, not only the last.
            seen += [await fleet.reset(mine, 1), await fleet.step(mine, "hello")]
            for handle in (mine, *others):
                await fleet.close(handle)
            assert {node.load for node in fleet._nodes.values()} == {0}
            return seen

    hello = StepResult("hello", 0.5, False, False)
    assert asyncio.run(main()) == ["play 1", "play 2", "play 3", hello]


def test_what_is_given_up_leaves_nothing(cluster):
    slow = TALKATIVE.replace("    plays = 0", "    plays = 0; __import__('time').sleep(1)")

    async def main():
        async with EnvironmentFleet(SETTINGS) as fleet:
            before = descendants()
            opening = [asyncio.create_task(fleet.open(slow)) for _ in range(4)]
            await asyncio.sleep(0.3)
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
            while fleet._aside:
                await asyncio.sleep(0.05)
            assert {node.load for node in fleet._nodes.values()} == {0}
            assert not {pid for pid in descendants() - before if _is_zygote(pid)}
            handle = await fleet.open(TALKATIVE)
            waiting = asyncio.create_task(fleet.reset(handle, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            with pytest.raises(EnvironmentFault, match="gave up"):
                await fleet.step(handle, "too late")
            await fleet.close(handle)

    asyncio.run(main())


def test_an_environment_that_kills_nodes_ends_few_of_them(cluster):
    async def main():
        async with EnvironmentFleet(SETTINGS) as fleet:
            handle = await fleet.open(TALKATIVE)
            await fleet.reset(handle, 1)
            for _ in range(fleets.MOST_LOSSES - 1):
                fleet._lose(fleet._episodes[handle].node, "as the test has it")
                await fleet.refresh()
                await fleet.step(handle, "still here")
            fleet._lose(fleet._episodes[handle].node, "as the test has it")
            await fleet.refresh()
            with pytest.raises(HostFault, match="has lost 3 nodes"):
                await fleet.step(handle, "no more")
            await fleet.close(handle)

    asyncio.run(main())


def test_the_tier_of_every_node_is_told(cluster):
    async def main(**settings):
        async with EnvironmentFleet(dataclasses.replace(SETTINGS, **settings)) as fleet:
            return str(fleet.report)

    shown = asyncio.run(main())
    assert "environments run on 2 nodes" in shown
    assert shown.count("sandbox tier") == 1
    assert shown.count("1 cores)") == 2
    with pytest.raises(NoHost, match="minimum_tier = 99 is not reached"):
        asyncio.run(main(minimum_tier=99))


def test_without_a_node_it_waits_and_ends(cluster):
    async def main():
        async with EnvironmentFleet(dataclasses.replace(SETTINGS, patience=0.2)) as fleet:
            fleet._watch.cancel()
            for node in list(fleet._nodes.values()):
                fleet._lose(node, "as the test has it")
            with pytest.raises(NoHost, match=r"config\.sandbox\.patience"):
                await fleet.open(TALKATIVE)

    asyncio.run(main())
