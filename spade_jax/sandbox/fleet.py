"""Many environment hosts as one: a Ray actor on each node, episodes placed where there is room.

Only hosts speak to Ray; the children that run model-written code never do, because Ray unpickles
what its workers send. Calls and answers travel as JSON text. Ray is an extra
(``pip install 'spade-jax[ray]'``); :mod:`spade_jax.sandbox.cluster` connects to the cluster.
"""

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import time
import typing
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from spade_jax.sandbox import limits
from spade_jax.sandbox.actor import HostActor, Outcome
from spade_jax.sandbox.cluster import in_thread, reconnect
from spade_jax.sandbox.faults import EnvironmentFault, HostFault, NoHost
from spade_jax.sandbox.host import LOADING_PER_CORE
from spade_jax.sandbox.replies import StepResult

if typing.TYPE_CHECKING:
    from spade_jax import config

log = logging.getLogger(__name__)

START_SECONDS = 120.0
STOP_SECONDS = 20.0
REFRESH_SECONDS = 5.0
LOOK_SECONDS = 60.0
AGAIN_SECONDS = 60.0  # until a node that could not start a host is asked again
ANSWER_SECONDS = 120.0  # for a node to answer, beside what the host itself gives the environment
MOST_LOSSES = 3  # nodes that one episode may lose: it may be what kills them
ACTOR_CALLS = 10000  # under way in one actor at once
GIVEN_UP = ("environment", "timeout", "the caller gave up on a call", "")


@dataclasses.dataclass(eq=False)
class _Node:
    """A host on one node of the cluster; ``load`` counts its open episodes."""

    id: str
    place: str
    cores: float
    actor: Any
    report: limits.Report
    load: int = 0
    lost: bool = False


@dataclasses.dataclass
class _Episode:
    """An open environment: where it is and how to bring another to the same state.

    Attributes:
      log: every request since it was opened, with the digest of its outcome. Not only since the
        last reset: an environment may remember the episodes before.
      broken: what every further call answers, once it is past help.
    """

    source: str
    max_turns: int | None
    folder: bool
    node: _Node
    handle: int
    log: list[tuple[tuple[Any, ...], bytes]] = dataclasses.field(default_factory=list)
    losses: int = 0
    broken: Outcome = ()


@dataclasses.dataclass(frozen=True)
class FleetReport:
    """What the self-tests found: of each node, and why others of the cluster are left out."""

    nodes: Mapping[str, limits.Report]
    left_out: Mapping[str, str]

    def __str__(self) -> str:
        """The tier of every node; what is missing is told once for all that miss the same."""
        alike: dict[str, list[str]] = {}
        for place, report in self.nodes.items():
            alike.setdefault(str(report), []).append(place)
        lines = [f"sandbox fleet: environments run on {len(self.nodes)} nodes"]
        lines += [f"{', '.join(places)}: {report}" for report, places in alike.items()]
        lines += [f"{place}: left out: {reason}" for place, reason in self.left_out.items()]
        return "\n".join(lines)


class EnvironmentFleet:
    """A :class:`~spade_jax.sandbox.interface.Host` over all nodes of a Ray cluster.

    When a node is lost or does not answer, each of its episodes is opened on another and its log
    replayed, at its next call; the caller sees nothing of it. If the replay differs, the
    environment is not deterministic and the call raises ``HostFault``, as it does for an episode
    that has lost ``MOST_LOSSES`` nodes. Nodes that join are used from the next look at the
    cluster, every ``REFRESH_SECONDS``; nodes without processors for Ray, as heads often are, never.

    ``settings.instances`` may be open on each node. Without any node, calls wait
    ``settings.patience`` seconds for one and then raise ``NoHost``.
    """

    def __init__(self, settings: "config.Sandbox"):
        self._settings = settings
        self._nodes: dict[str, _Node] = {}
        self._left_out: dict[str, tuple[str, str, float]] = {}  # id -> place, reason, tried when
        self._episodes: dict[int, _Episode] = {}
        self._opened = 0
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._aside: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "EnvironmentFleet":
        try:
            await self.refresh()
            if self._left_out and not self._nodes:
                raise NoHost(f"config.sandbox.fleet: no node of the cluster serves\n{self.report}")
            self._watch = asyncio.create_task(self._keep_watching())
            await self._some_node()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every host of this fleet."""
        waiting = [task for task in (self._watch, *self._aside) if task is not None]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._episodes.clear()
        await asyncio.gather(*map(self._end, self._nodes.values()))
        self._nodes.clear()

    @property
    def report(self) -> FleetReport:
        """See :meth:`Host.report`."""
        nodes = {node.place: node.report for node in self._nodes.values()}
        return FleetReport(nodes, {place: why for place, why, _ in self._left_out.values()})

    async def refresh(self) -> None:
        """Takes nodes that have joined; forgets those that have left."""
        async with self._looking:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await in_thread(ray.nodes)
            usable = {
                node["NodeID"]: node
                for node in found
                if node["Alive"] and node["Resources"].get("CPU")
            }
            for id in set(self._nodes) - set(usable):
                self._lose(self._nodes[id], "it has left the cluster")
            self._left_out = {
                id: entry
                for id, entry in self._left_out.items()
                if id in usable and time.monotonic() - entry[2] < AGAIN_SECONDS
            }
            new = set(usable) - set(self._nodes) - set(self._left_out)
            await asyncio.gather(*(self._start(usable[id]) for id in sorted(new)))

    async def _keep_watching(self) -> None:
        told = False
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                if self._settings.fleet and await reconnect(self._settings.fleet):
                    for node in list(self._nodes.values()):
                        self._lose(node, "the connection to the cluster was lost")
                await self.refresh()
                told = False
            except Exception as error:  # whatever Ray raises: the next look may find it again
                if not told:
                    log.warning("the Ray cluster does not answer: %s", error)
                told = True

    async def _start(self, facts: Mapping[str, Any]) -> None:
        id, cores = facts["NodeID"], facts["Resources"]["CPU"]
        place = f"{facts['NodeManagerAddress']} ({id[:8]}, {cores:g} cores)"
        actor: Any = (
            ray.remote(HostActor)
            .options(
                num_cpus=0,
                max_restarts=0,
                max_concurrency=ACTOR_CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False),
            )
            .remote(self._settings)
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                layers, reason = await actor.start.remote()
        except TimeoutError:
            layers, reason = {}, f"its host did not start within {START_SECONDS:g} s"
        except Exception as error:  # Ray Client raises all kinds
            layers, reason = {}, str(error) or type(error).__name__
        if reason:
            log.warning("node %s is left out: %s", place, reason)
            self._left_out[id] = place, reason, time.monotonic()
            await _kill(actor)
            return
        self._nodes[id] = _Node(id, place, cores, actor, limits.Report(layers))
        log.info("node %s serves at tier %d", place, self._nodes[id].report.tier)
        self._wake()

    async def _end(self, node: _Node) -> None:
        with contextlib.suppress(Exception):  # whatever Ray raises: it is gone
            async with asyncio.timeout(STOP_SECONDS):
                await node.actor.stop.remote()
        await _kill(node.actor)

    def _lose(self, node: _Node, reason: object) -> None:
        if not node.lost:
            node.lost = True
            log.warning("node %s is lost: %s", node.place, reason)
            if self._nodes.get(node.id) is node:
                del self._nodes[node.id]
            self._beside(_kill(node.actor))
            self._wake()

    def _wake(self) -> None:
        """Lets all who wait for a node or for room look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _some_node(self) -> None:
        """Waits until there is a node."""
        patience = self._settings.patience
        if not self._nodes:
            log.warning("no node of the Ray cluster serves; waiting %g s for one", patience)
        try:
            async with asyncio.timeout(patience):
                while not self._nodes:
                    await self._changed.wait()
        except TimeoutError as error:
            raise NoHost(
                f"for {patience:g} s (config.sandbox.patience) no node of the Ray cluster of "
                "config.sandbox.fleet has served: see its nodes with `ray status` on its head. The "
                "same command continues the run"
            ) from error

    async def open(self, source: str, max_turns: int | None = None, folder: bool = False) -> int:
        """See :meth:`Host.open`; on the node with the fewest episodes a core."""
        node, handle = await self._place(source, max_turns, folder)
        self._opened += 1
        self._episodes[self._opened] = _Episode(source, max_turns, folder, node, handle)
        return self._opened

    async def reset(self, handle: int, seed: int) -> str:
        """See :meth:`Host.reset`."""
        return await self._logged(handle, "reset", seed)

    async def step(self, handle: int, action: str) -> StepResult:
        """See :meth:`Host.step`."""
        return StepResult(*await self._logged(handle, "step", action))

    async def play(
        self, handle: int, seed: int, actions: Sequence[str]
    ) -> tuple[str, list[StepResult]]:
        """See :meth:`Host.play`."""
        observation, results = await self._logged(handle, "play", seed, list(actions))
        return observation, [StepResult(*result) for result in results]

    async def solution(self, handle: int) -> list[str]:
        """See :meth:`Host.solution`."""
        return await self._logged(handle, "solution")

    async def tools(self, handle: int) -> list[dict[str, Any]]:
        """See :meth:`Host.tools`."""
        return await self._logged(handle, "tools")

    async def call(self, handle: int, name: str, arguments: Mapping[str, Any]) -> Any:
        """See :meth:`Host.call`."""
        return await self._logged(handle, "call", name, dict(arguments))

    async def calls(self, handle: int, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        """See :meth:`Host.calls`."""
        return await self._logged(handle, "calls", [[name, dict(given)] for name, given in calls])

    async def examine(self, handle: int) -> dict[str, Any]:
        """See :meth:`Host.examine`."""
        return await self._logged(handle, "examine")

    async def output(self, handle: int) -> str:
        """See :meth:`Host.output`."""
        return await self._logged(handle, "output")

    async def close(self, handle: int) -> None:
        """See :meth:`Host.close`."""
        episode = self._episodes.pop(handle, None)
        if episode is not None:
            await self._release(episode.node, episode.handle)

    async def _release(self, node: _Node, handle: int) -> None:
        try:
            outcome = await self._ask(node, "close", handle)
        except _NodeLostError:
            return
        finally:
            node.load -= 1
            self._wake()
        _value(outcome)

    async def _logged(self, handle: int, *request: Any) -> Any:
        if (episode := self._episodes.get(handle)) is None:
            raise HostFault(f"no environment is open under handle {handle}")
        while not episode.broken:
            try:
                outcome = await self._asked(episode, request)
            except _NodeLostError:
                await self._revive(episode)
                continue
            except asyncio.CancelledError:
                episode.broken = GIVEN_UP
                raise
            if request[0] != "output":  # reading it changes nothing
                episode.log.append((request, _digest(outcome)))
            return _value(outcome)
        return _value(episode.broken)

    async def _asked(self, episode: _Episode, request: tuple[Any, ...]) -> Outcome:
        return await self._ask(episode.node, request[0], episode.handle, *request[1:])

    async def _revive(self, episode: _Episode) -> None:
        """Brings the episode to the same state on another node, or marks it as broken."""
        episode.losses += 1
        if episode.losses >= MOST_LOSSES:
            episode.broken = "host", f"the episode is dropped: it has lost {MOST_LOSSES} nodes"
            return
        try:
            same = await self._replayed(episode)
        except _NodeLostError:
            return  # the next call finds it lost once more
        except asyncio.CancelledError:
            episode.broken = GIVEN_UP
            raise
        if not same:
            episode.broken = "host", "the replay of a lost episode differs; it is dropped"

    async def _replayed(self, episode: _Episode) -> bool:
        """Opens it elsewhere and asks all again; whether everything was as before."""
        try:
            episode.node, episode.handle = await self._place(
                episode.source, episode.max_turns, episode.folder
            )
        except EnvironmentFault:
            return False
        for request, digest in episode.log:
            if _digest(await self._asked(episode, request)) != digest:
                return False
        return True

    async def _place(self, source: str, max_turns: int | None, folder: bool) -> tuple[_Node, int]:
        """Opens an environment on the least loaded node; waits if all are full.

        A host that cannot serve is passed over: being idle, it would else be given everything.
        """
        ill: list[_Node] = []
        reason, losses = "", 0
        while True:
            if not self._nodes:
                await self._some_node()
            well = [node for node in self._nodes.values() if node not in ill]
            if not well:
                raise HostFault(reason)
            free = [node for node in well if node.load < self._settings.instances]
            if not free:
                await self._changed.wait()
                continue
            node = min(free, key=lambda each: each.load / each.cores)
            node.load += 1
            try:
                outcome = await self._opened_on(node, source, max_turns, folder)
            except _NodeLostError:
                losses += 1
                if losses == MOST_LOSSES:
                    raise HostFault(f"opening it has lost {MOST_LOSSES} nodes") from None
                continue
            if outcome[0] == "value":
                return node, outcome[1]
            node.load -= 1
            self._wake()
            if outcome[0] == "environment":
                _value(outcome)
            ill.append(node)
            reason = f"{node.place}: {outcome[1]}"

    async def _opened_on(self, node: _Node, *request: Any) -> Outcome:
        """Outcome of an open. If the caller gives up, what is opened all the same is closed."""
        opening = asyncio.create_task(self._ask(node, "open", *request))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._beside(self._abandon(node, opening))
            raise

    async def _abandon(self, node: _Node, opening: asyncio.Task[Outcome]) -> None:
        with contextlib.suppress(_NodeLostError, HostFault):
            outcome = await opening
            if outcome[0] == "value":
                await self._release(node, outcome[1])
            else:
                node.load -= 1
                self._wake()

    async def _ask(self, node: _Node, method: str, *arguments: Any) -> Outcome:
        """The outcome of a call, from a node that has so long for it that only a lost one has not
        answered."""
        if node.lost:
            raise _NodeLostError
        try:
            request = json.dumps([method, *arguments])
        except (ValueError, RecursionError) as error:  # as the wire has it
            return "environment", "malformed", f"not JSON: {error}", ""
        seconds = ANSWER_SECONDS + self._settings.step_timeout
        if method == "open":  # it may have to wait for others
            queue = self._settings.instances / LOADING_PER_CORE
            seconds = ANSWER_SECONDS + queue * self._settings.open_timeout
        try:
            async with asyncio.timeout(seconds):
                return json.loads(await node.actor.ask.remote(request))
        except ray.exceptions.RayTaskError:
            raise  # an error of ours, on the node
        except TimeoutError as error:
            self._lose(node, f"no answer to {method} within {seconds:g} s")
            raise _NodeLostError from error
        except Exception as error:  # Ray Client raises all kinds
            self._lose(node, error)
            raise _NodeLostError from error


async def _kill(actor: Any) -> None:
    """Ends an actor and, with it, the zygote and all its children; nothing if it is gone."""
    with contextlib.suppress(Exception):  # whatever Ray raises: it is gone
        async with asyncio.timeout(STOP_SECONDS):
            await in_thread(functools.partial(ray.kill, actor))


def _digest(outcome: Outcome) -> bytes:
    """Of all but what was printed."""
    return hashlib.sha256(json.dumps(outcome[:3]).encode()).digest()


def _value(outcome: Outcome) -> Any:
    kind, *details = outcome
    if kind == "environment":
        raise EnvironmentFault(*details)
    if kind == "host":
        raise HostFault(*details)
    return details[0]


class _NodeLostError(Exception):
    """The node of an episode is gone."""
