"""The asynchronous front of the sandbox: environments opened, played and closed by number.

The host keeps every number that matters on its own side and believes nothing that a child says
until it has the right type and range. Each call has a deadline; a child that is late, dies or
breaks the protocol is killed and reaped, and its instance answers with the same fault from then on.
"""

import asyncio
import contextlib
import fcntl
import mmap
import os
import resource
import socket
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.sandbox import limits, replies
from spade_jax.sandbox.faults import HostFault
from spade_jax.sandbox.instance import Instance
from spade_jax.sandbox.process import ZygoteProcess
from spade_jax.sandbox.replies import StepResult

if typing.TYPE_CHECKING:  # the sandbox itself needs nothing but the standard library
    from spade_jax import config

__all__ = ["EnvironmentHost", "StepResult"]

ACTION_CHARACTERS = 8192
LOADING_PER_CORE = 8
OTHER_DESCRIPTORS = 256  # what the rest of the process may need beside two an instance


class EnvironmentHost:
    """A :class:`~spade_jax.sandbox.interface.Host` on this machine.

    Use as an asynchronous context manager: leaving it kills and reaps every process.
    """

    def __init__(self, settings: "config.Sandbox"):
        self._settings = settings
        self._zygote: ZygoteProcess | None = None
        self._lost: list[ZygoteProcess] = []
        self._starting = asyncio.Lock()
        self._room = asyncio.Semaphore(settings.instances)
        self._loading = asyncio.Semaphore(LOADING_PER_CORE * (os.cpu_count() or 1))
        self._instances: dict[int, Instance] = {}
        self._opened = 0
        self._action_limit = min(ACTION_CHARACTERS, settings.message_bytes // 8)

    async def __aenter__(self) -> "EnvironmentHost":
        await self._running_zygote()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every process of this host. Calls under way fail with HostFault."""
        if self._zygote is not None:
            self._lost.append(self._zygote)
            self._zygote = None
        await self._bury()
        for instance in list(self._instances.values()):
            instance.on_lost("the host was closed")
            await self.close(instance.handle)

    @property
    def report(self) -> limits.Report:
        """What the self-test of the running zygote found."""
        if self._zygote is None:
            raise HostFault("the sandbox is not running; enter its context first")
        return self._zygote.report

    async def open(self, source: str, max_turns: int | None = None, folder: bool = False) -> int:
        """See :meth:`Host.open`."""
        await self._room.acquire()
        try:
            async with self._loading:
                instance = await self._start_instance(max_turns, folder)
                try:
                    await instance.ask(["open", source, max_turns], replies.nothing)
                except BaseException:
                    await self._discard(instance)
                    raise
                instance.timeout = self._settings.step_timeout
        except BaseException:
            self._room.release()
            raise
        return instance.handle

    async def reset(self, handle: int, seed: int) -> str:
        """See :meth:`Host.reset`."""
        instance = self._instance(handle)
        instance.turns = 0
        return await instance.ask(["reset", seed], replies.text)

    async def step(self, handle: int, action: str) -> StepResult:
        """See :meth:`Host.step`."""
        instance = self._instance(handle)
        result = await instance.ask(["step", self._action(action)], replies.step_result)
        return self._count_turn(instance, result)

    async def play(
        self, handle: int, seed: int, actions: Sequence[str]
    ) -> tuple[str, list[StepResult]]:
        """See :meth:`Host.play`."""
        actions = [self._action(action) for action in actions]
        request = ["play", seed, actions, self._settings.message_bytes // 2]
        return await self._instance(handle).ask(request, replies.episode(len(actions)))

    async def solution(self, handle: int) -> list[str]:
        """See :meth:`Host.solution`."""
        return await self._instance(handle).ask(["solution"], replies.texts)

    async def tools(self, handle: int) -> list[dict[str, Any]]:
        """See :meth:`Host.tools`."""
        return await self._instance(handle).ask(["tools"], replies.mappings)

    async def call(self, handle: int, name: str, arguments: Mapping[str, Any]) -> Any:
        """See :meth:`Host.call`."""
        request = ["call", name, dict(arguments)]
        return await self._instance(handle).ask(request, replies.anything)

    async def calls(self, handle: int, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        """See :meth:`Host.calls`."""
        made = [[name, dict(arguments)] for name, arguments in calls]
        request = ["calls", made, self._settings.message_bytes // 2]
        return await self._instance(handle).ask(request, replies.sequence(len(made)))

    async def examine(self, handle: int) -> dict[str, Any]:
        """See :meth:`Host.examine`."""
        return await self._instance(handle).ask(["examine"], replies.mapping)

    async def output(self, handle: int) -> str:
        """See :meth:`Host.output`."""
        return self._instance(handle).output()

    async def close(self, handle: int) -> None:
        """See :meth:`Host.close`."""
        instance = self._instances.get(handle)
        if instance is not None and not instance.closing:
            instance.closing = True
            try:
                await self._discard(instance)
            finally:
                self._room.release()

    async def _start_instance(self, max_turns: int | None, folder: bool) -> Instance:
        zygote = await self._running_zygote()
        settings = self._settings
        if folder and (reason := zygote.report.layers["private_folder"]):
            raise HostFault(
                f"no private folder can be had: {reason}; set config.sandbox.folder_mb, on a "
                "machine that reaches tier 3"
            )
        ours, theirs = socket.socketpair()
        printed, printing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(PermissionError):  # an ordinary user with many: what it has holds
            size = settings.output_bytes + mmap.PAGESIZE  # a long line begins a page
            fcntl.fcntl(printing, fcntl.F_SETPIPE_SZ, size)
        self._opened += 1
        instance = Instance(
            self._opened,
            ours,
            printed,
            settings.message_bytes,
            settings.output_bytes,
            settings.open_timeout,
            max_turns,
            zygote.kill,
        )
        self._instances[instance.handle] = instance
        zygote.fork(instance.handle, [theirs.detach(), printing], folder)
        return instance

    async def _discard(self, instance: Instance) -> None:
        try:
            await instance.discard()
        finally:
            self._instances.pop(instance.handle, None)

    async def _running_zygote(self) -> ZygoteProcess:
        async with self._starting:
            if self._zygote is None:
                _allow_descriptors(self._settings.instances)
                await self._bury()
                self._zygote = await ZygoteProcess.start(self._settings, self)
            return self._zygote

    async def _bury(self) -> None:
        while self._lost:
            await self._lost.pop().close()

    def _instance(self, handle: int) -> Instance:
        instance = self._instances.get(handle)
        if instance is None:
            raise HostFault(f"no environment is open under handle {handle}")
        return instance

    def _action(self, action: str) -> str:
        action = action[: self._action_limit]
        return action if action.isascii() else action.encode("utf-8", "replace").decode("utf-8")

    @staticmethod
    def _count_turn(instance: Instance, result: StepResult) -> StepResult:
        instance.turns += 1
        if instance.max_turns is None or instance.turns < instance.max_turns or result.terminated:
            return result
        return StepResult(result.observation, result.reward, False, True)

    def on_forked(self, instance: int) -> None:
        """Listener of the zygote."""
        if instance in self._instances:
            self._instances[instance].on_forked()

    def on_refused(self, instance: int, reason: str) -> None:
        """Listener of the zygote."""
        if instance in self._instances:
            self._instances[instance].on_lost(f"no process could be made: {reason}")

    def on_reaped(self, instance: int, status: int) -> None:
        """Listener of the zygote."""
        if instance in self._instances:
            self._instances[instance].on_reaped(status)

    def on_lost(self, zygote: ZygoteProcess) -> None:
        """Listener of the zygote: its children are gone with it; the next open starts another."""
        if self._zygote is zygote:
            self._zygote = None
            self._lost.append(zygote)
        for instance in list(self._instances.values()):
            instance.on_lost("the zygote died; the episode can be played again")


def _allow_descriptors(instances: int) -> None:
    """Raises this process's soft limit where all instances would not fit under it."""
    needed = 2 * instances + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise HostFault(
                f"config.sandbox.instances = {instances} needs {needed} open files, the limit is "
                f"{hard}; lower the setting or raise the limit (ulimit -Hn)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
