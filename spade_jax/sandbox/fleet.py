"""Many environment hosts as one: a Ray actor on each node, episodes placed where there is room.

Only hosts speak to Ray; the children that run model-written code never do, because Ray unpickles
what its workers send. Ray is an extra (``pip install spade-jax[ray]``) and is started by the
caller: ``ray.init(address="auto")``.
"""

import asyncio
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.host import EnvironmentHost, StepResult

if typing.TYPE_CHECKING:
    from spade_jax import config

START_SECONDS = 120.0
REFRESH_SECONDS = 5.0
ACTOR_CALLS = 10000  # under way in one actor at once


class HostActor:
    """One :class:`EnvironmentHost`. Faults travel as values: Ray would wrap exceptions."""

    def __init__(self, settings: "config.Sandbox"):
        self._host = EnvironmentHost(settings)

    async def start(self) -> int:
        """Starts the zygote; the tier reached."""
        await self._host.__aenter__()
        return self._host.report.tier

    async def ask(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """('value', result), ('environment', kind, reason, output) or ('host', reason)."""
        try:
            return "value", await getattr(self._host, method)(*arguments)
        except EnvironmentFault as fault:
            return "environment", fault.kind, fault.reason, fault.output
        except HostFault as fault:
            return "host", str(fault)

    async def stop(self) -> None:
        """Ends all processes of the host."""
        await self._host.aclose()


@dataclasses.dataclass
class _Node:
    """One node of the cluster; ``load`` counts its open episodes."""

    actor: Any
    cores: float
    load: int = 0


@dataclasses.dataclass
class _Episode:
    """An open environment: where it is and how to bring another to the same state.

    ``log`` holds every call since the last reset with what it returned.
    """

    source: str
    max_turns: int | None
    folder: bool
    node: str
    handle: int
    log: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = dataclasses.field(default_factory=list)


class EnvironmentFleet:
    """The interface of :class:`EnvironmentHost`, over all nodes of the Ray cluster.

    When a node is lost, each of its episodes is opened on another and its log replayed, at its
    next call; the caller sees nothing of it. If the replay differs, the environment is not
    deterministic and the call raises ``HostFault``, as it does when no node is left. Nodes that
    join are used from the next look at the cluster, every ``REFRESH_SECONDS``.
    """

    def __init__(self, settings: "config.Sandbox"):
        self._settings = settings
        self._nodes: dict[str, _Node] = {}
        self._episodes: dict[int, _Episode] = {}
        self._opened = 0
        self._room = asyncio.Condition()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "EnvironmentFleet":
        await self.refresh()
        if not self._nodes:
            raise HostFault("no node of the Ray cluster could start a sandbox host")
        self._watch = asyncio.create_task(self._keep_watching())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for node in self._nodes.values():
            try:
                await node.actor.stop.remote()
            except ray.exceptions.RayActorError:
                continue
            ray.kill(node.actor)
        self._nodes.clear()
        self._episodes.clear()

    async def refresh(self) -> None:
        """Takes nodes that have joined; forgets those that have left."""
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for name in set(self._nodes) - set(alive):
            self._lose(name)
        await asyncio.gather(
            *(self._start(name, alive[name]) for name in set(alive) - set(self._nodes))
        )

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self.refresh()

    async def _start(self, name: str, facts: Mapping[str, Any]) -> None:
        kind = ray.remote(HostActor).options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=ACTOR_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
        )
        actor: Any = kind.remote(self._settings)
        try:
            await asyncio.wait_for(actor.start.remote(), START_SECONDS)
        except (ray.exceptions.RayActorError, TimeoutError):
            return  # it left while starting; the next look decides
        self._nodes[name] = _Node(actor, facts["Resources"].get("CPU", 1.0))
        async with self._room:
            self._room.notify_all()

    def _lose(self, name: str) -> None:
        self._nodes.pop(name, None)

    async def open(self, source: str, max_turns: int | None = None, folder: bool = False) -> int:
        """As :meth:`EnvironmentHost.open`, on the node with the fewest episodes a core."""
        episode = _Episode(source, max_turns, folder, "", 0)
        await self._place(episode)
        self._opened += 1
        self._episodes[self._opened] = episode
        return self._opened

    async def reset(self, handle: int, seed: int) -> str:
        """As :meth:`EnvironmentHost.reset`."""
        self._episode(handle).log.clear()
        return await self._logged(handle, "reset", seed)

    async def step(self, handle: int, action: str) -> StepResult:
        """As :meth:`EnvironmentHost.step`."""
        return await self._logged(handle, "step", action)

    async def play(
        self, handle: int, seed: int, actions: Sequence[str]
    ) -> tuple[str, list[StepResult]]:
        """As :meth:`EnvironmentHost.play`."""
        self._episode(handle).log.clear()
        return await self._logged(handle, "play", seed, list(actions))

    async def solution(self, handle: int) -> list[str]:
        """As :meth:`EnvironmentHost.solution`."""
        return await self._logged(handle, "solution")

    async def tools(self, handle: int) -> list[dict[str, Any]]:
        """As :meth:`EnvironmentHost.tools`."""
        return await self._logged(handle, "tools")

    async def call(self, handle: int, name: str, arguments: Mapping[str, Any]) -> Any:
        """As :meth:`EnvironmentHost.call`."""
        return await self._logged(handle, "call", name, dict(arguments))

    async def calls(self, handle: int, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        """As :meth:`EnvironmentHost.calls`."""
        return await self._logged(handle, "calls", list(calls))

    async def examine(self, handle: int) -> dict[str, Any]:
        """As :meth:`EnvironmentHost.examine`."""
        return await self._logged(handle, "examine")

    async def output(self, handle: int) -> str:
        """As :meth:`EnvironmentHost.output`."""
        return await self._logged(handle, "output")

    async def close(self, handle: int) -> None:
        """As :meth:`EnvironmentHost.close`."""
        episode = self._episodes.pop(handle, None)
        node = self._nodes.get(episode.node) if episode else None
        if episode is None or node is None:
            return
        node.load -= 1
        try:
            await self._ask(episode.node, "close", episode.handle)
        except _NodeLostError:
            return
        finally:
            async with self._room:
                self._room.notify_all()

    def _episode(self, handle: int) -> _Episode:
        if handle not in self._episodes:
            raise HostFault(f"no environment is open under handle {handle}")
        return self._episodes[handle]

    async def _logged(self, handle: int, *request: Any) -> Any:
        episode = self._episode(handle)
        while True:
            try:
                outcome = await self._ask(episode.node, request[0], episode.handle, *request[1:])
            except _NodeLostError:
                await self._revive(episode)
                continue
            episode.log.append((request, outcome))
            return _value(outcome)

    async def _revive(self, episode: _Episode) -> None:
        """Brings the episode to the same state on another node."""
        while True:
            await self._place(episode)
            try:
                for request, outcome in episode.log:
                    again = await self._ask(episode.node, request[0], episode.handle, *request[1:])
                    if again[:3] != outcome[:3]:  # what it printed does not count
                        raise HostFault("the replay of a lost episode differs; it is dropped")
            except _NodeLostError:
                continue
            return

    async def _place(self, episode: _Episode) -> None:
        """Opens the episode's environment on the least loaded node; waits if all are full."""
        while True:
            async with self._room:
                if not self._nodes:
                    raise HostFault("no node of the fleet is left")
                name = min(
                    self._nodes, key=lambda each: self._nodes[each].load / self._nodes[each].cores
                )
                node = self._nodes[name]
                if node.load >= self._settings.instances:
                    await self._room.wait()
                    continue
                node.load += 1
            try:
                request = episode.source, episode.max_turns, episode.folder
                episode.handle = _value(await self._ask(name, "open", *request))
            except _NodeLostError:
                continue
            except BaseException:
                node.load -= 1
                raise
            episode.node = name
            return

    async def _ask(self, name: str, method: str, *arguments: Any) -> tuple[Any, ...]:
        node = self._nodes.get(name)
        if node is None:
            raise _NodeLostError(name)
        try:
            return await node.actor.ask.remote(method, *arguments)
        except ray.exceptions.RayError as error:
            self._lose(name)
            raise _NodeLostError(name) from error


def _value(outcome: tuple[Any, ...]) -> Any:
    kind, *details = outcome
    if kind == "environment":
        raise EnvironmentFault(*details)
    if kind == "host":
        raise HostFault(*details)
    return details[0]


class _NodeLostError(Exception):
    """The node of an episode is gone."""
