"""The host's end of one zygote: starting it, commands to it, events from it, ending it."""

import asyncio
import collections
import json
import os
import pathlib
import socket
import subprocess
import sys
import typing

import spade_jax
from spade_jax.sandbox import limits
from spade_jax.sandbox.commands import (
    COMMAND,
    EVENT,
    FORK,
    FORK_WITH_FOLDER,
    FORKED,
    KILL,
    REFUSED,
    REPORT_BYTES,
)
from spade_jax.sandbox.faults import HostFault

if typing.TYPE_CHECKING:
    from spade_jax import config

START_SECONDS = 30.0
END_SECONDS = 10.0
# Modules such as random and threading ask for a visit after each fork. A zygote has one thread and
# a child seeds its own numbers, so all those visits would do is to copy pages: two thirds of what
# a bare fork costs. OpenSSL and libuuid are copied pages too; hashlib and uuid do without.
BOOT = """
import os, sys
os.register_at_fork = lambda **hooks: None
sys.modules |= {"_hashlib": None, "_uuid": None}
sys.path.insert(0, sys.argv[1])
from spade_jax.sandbox import pages
pages.gather()
from spade_jax.sandbox import zygote
zygote.main(int(sys.argv[2]), sys.argv[3])
"""
# No site-packages, no user folder, nothing of the working directory, no bytecode written. Not
# isolated mode (-I): it would also ignore PYTHONHASHSEED, which must be the same on every host.
INTERPRETER_FLAGS = ("-S", "-s", "-P", "-B")


class Listener(typing.Protocol):
    """Who is told what the zygote reports."""

    def on_forked(self, instance: int) -> None:
        """The child of ``instance`` lives."""

    def on_refused(self, instance: int, reason: str) -> None:
        """No child could be made for ``instance``."""

    def on_reaped(self, instance: int, status: int) -> None:
        """The child of ``instance`` is gone; ``status`` as of waitpid."""

    def on_lost(self, zygote: "ZygoteProcess") -> None:
        """The zygote itself is gone, and all its children with it."""


class ZygoteProcess:
    """One running zygote. Made by :meth:`start`."""

    report: limits.Report

    def __init__(self, process: subprocess.Popen, control: socket.socket, listener: Listener):
        self._process = process
        self._control = control
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._outgoing: collections.deque[tuple[bytes, list[int]]] = collections.deque()
        self._lost = False

    @classmethod
    async def start(cls, settings: "config.Sandbox", listener: Listener) -> "ZygoteProcess":
        """A zygote that has passed its self-test.

        Raises:
          HostFault: it did not start.
          InsufficientTierError: this machine does not reach ``settings.minimum_tier``.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        values = {
            "memory": settings.memory_mb << 20,
            "cpu_seconds": settings.cpu_seconds,
            "message": settings.message_bytes,
            "instances": settings.instances,
            "own_namespaces": settings.own_namespaces,
            "folder": settings.folder_mb << 20,
        }
        root = str(pathlib.Path(spade_jax.__file__).parent.parent)
        arguments = [root, str(theirs.fileno()), json.dumps(values)]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *INTERPRETER_FLAGS, "-c", BOOT, *arguments],
                # Symbols that a child would be the first to look up would be copied pages too.
                env={"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        ours.setblocking(False)
        zygote = cls(process, ours, listener)
        try:
            async with asyncio.timeout(START_SECONDS):
                answer = await zygote._loop.sock_recv(ours, REPORT_BYTES)
            if not answer:
                raise HostFault("the zygote ended while starting; its standard error says why")
            zygote.report = limits.Report(json.loads(answer))
            zygote.report.require(settings.minimum_tier)
        except TimeoutError as error:
            await zygote.close()
            raise HostFault(f"the zygote did not start within {START_SECONDS} s") from error
        except BaseException:
            await zygote.close()
            raise
        zygote._loop.add_reader(ours, zygote._on_readable)
        return zygote

    def fork(self, instance: int, descriptors: list[int], folder: bool) -> None:
        """Asks for a child that speaks on the first descriptor and prints to the second.

        Both are closed here once sent.
        """
        self._send(FORK_WITH_FOLDER if folder else FORK, instance, descriptors)

    def kill(self, instance: int) -> None:
        """Asks for the end of a child; unknown instances are ignored."""
        self._send(KILL, instance, [])

    def _send(self, command: bytes, instance: int, descriptors: list[int]) -> None:
        if self._lost:
            _close(descriptors)
            return
        self._outgoing.append((COMMAND.pack(command, instance), descriptors))
        if len(self._outgoing) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            message, descriptors = self._outgoing[0]
            try:
                if descriptors:
                    socket.send_fds(self._control, [message], descriptors)
                else:
                    self._control.send(message)
            except BlockingIOError:
                self._loop.add_writer(self._control, self._on_writable)
                return
            except OSError:
                self._lose()
                return
            _close(descriptors)
            self._outgoing.popleft()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._control)
        self._flush()

    def _on_readable(self) -> None:
        while not self._lost:
            try:
                message = self._control.recv(EVENT.size)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._lose()
                return
            event, instance, status = EVENT.unpack(message)
            if event == FORKED:
                self._listener.on_forked(instance)
            elif event == REFUSED:
                self._listener.on_refused(instance, os.strerror(status))
            else:
                self._listener.on_reaped(instance, status)

    def _lose(self) -> None:
        if not self._lost:
            self._disconnect()
            self._listener.on_lost(self)

    def _disconnect(self) -> None:
        self._lost = True
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        for _, descriptors in self._outgoing:
            _close(descriptors)
        self._outgoing.clear()

    async def close(self) -> None:
        """Ends the zygote and all its children; returns when they are gone."""
        if not self._lost:
            self._disconnect()
        deadline = self._loop.time() + END_SECONDS
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                self._process.kill()
                self._process.wait()
            await asyncio.sleep(0.002)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
