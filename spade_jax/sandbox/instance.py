"""One child as the host sees it: its socket, the call under way, the deadline, the fault."""

import asyncio
import io
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from spade_jax.sandbox import replies, wire
from spade_jax.sandbox.faults import EnvironmentFault, HostFault

T = TypeVar("T")
READ_BYTES = 65536
FORK_SECONDS = 60.0
REAP_SECONDS = 10.0
REASON_CHARACTERS = 500
# Faults that a living child reports of its environment.
REPORTED = ("syntax", "raised", "memory", "malformed", "missing", "too_large")
# Of these, the ones after which the child is in order and may be asked again.
HARMLESS = ("syntax", "raised", "missing")


class Instance:
    """A child process and the state of the talk with it.

    ``stream`` is the socket to the child, ``printed`` the pipe that holds what it prints, of which
    ``output_limit`` bytes are kept. ``timeout`` is what each call may take, in seconds, ``limit``
    what a message may, in bytes.
    ``kill`` asks the zygote to end it; the zygote's news come back through :meth:`on_forked` and
    :meth:`on_reaped`. Once broken, an instance answers every call with the same fault.
    """

    def __init__(
        self,
        handle: int,
        stream: socket.socket,
        printed: int,
        limit: int,
        output_limit: int,
        timeout: float,
        max_turns: int | None,
        kill: Callable[[int], None],
    ):
        self.handle = handle
        self.turns = 0
        self.max_turns = max_turns
        self.closing = False
        self._stream = stream
        self._printed = io.FileIO(printed)
        self._limit = limit
        self._output_limit = output_limit
        self._output = b""
        self.timeout = timeout
        self._kill = kill
        self._loop = asyncio.get_running_loop()
        self._decoder = wire.Decoder(limit)
        self._pending: asyncio.Future[Any] | None = None
        self._due = 0.0  # loop time at which the pending call is late
        self._alarm: asyncio.TimerHandle | None = None
        self._broken: EnvironmentFault | HostFault | None = None
        self._forked = self._dying = False
        self._reaped: asyncio.Future[None] = self._loop.create_future()
        stream.setblocking(False)
        self._loop.add_reader(stream.fileno(), self._on_readable)

    async def ask(self, request: list[Any], check: Callable[[Any], T]) -> T:
        """One request and its checked reply.

        Raises:
          EnvironmentFault: kinds of :mod:`spade_jax.sandbox.faults`.
          HostFault: the zygote is gone.
        """
        if self._broken is not None:
            raise self._copy(self._broken)
        if self._pending is not None:
            raise RuntimeError(f"environment {self.handle} is still busy with an earlier call")
        try:
            message = wire.encode(request, self._limit)
        except wire.OversizedError as error:
            raise EnvironmentFault("too_large", str(error)) from error
        except wire.WireError as error:  # a source or arguments with a lone surrogate, or NaN
            raise EnvironmentFault("malformed", str(error)) from error
        pending = self._pending = self._loop.create_future()
        self._due = self._loop.time() + (self.timeout if self._forked else FORK_SECONDS)
        self._set_alarm()
        try:
            sent = self._stream.send(message)
            if sent < len(message):
                await self._loop.sock_sendall(self._stream, memoryview(message)[sent:])
            value = await pending
        except OSError:  # the child closed its end; why, the zygote will tell
            value = await pending
        except asyncio.CancelledError:
            self._break(EnvironmentFault("timeout", "the caller gave up on a call"))
            raise
        finally:
            self._pending = None
        return self._accept(value, check)

    def _accept(self, value: Any, check: Callable[[Any], T]) -> T:
        try:
            if type(value) is list and len(value) == 2 and value[0] == "ok":
                return check(value[1])
            if type(value) is list and len(value) == 3 and value[0] == "fault":
                kind, reason = value[1:]
                if type(kind) is str and kind in REPORTED and type(reason) is str:
                    fault = EnvironmentFault(kind, reason[:REASON_CHARACTERS], self.output())
                    if kind not in HARMLESS:
                        self._break(fault)
                    raise fault
            raise replies.MalformedError("a reply that is neither a value nor a fault")
        except replies.MalformedError as error:
            fault = EnvironmentFault("malformed", str(error))
            self._break(fault)
            raise self._copy(fault) from error

    def _on_readable(self) -> bool:
        """Takes one piece of what has arrived; False if there was none."""
        try:
            piece = self._stream.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._end(None)
            return False
        try:
            message = self._decoder.feed(piece)
            if self._pending is None or self._pending.done():
                raise wire.WireError("bytes that no call asked for")
        except wire.WireError as error:
            kind = "too_large" if isinstance(error, wire.OversizedError) else "malformed"
            self._break(EnvironmentFault(kind, str(error)))
            return False
        if message is not None:
            self._pending.set_result(message[0])
        return True

    def _set_alarm(self) -> None:
        # One timer serves many calls: most end long before theirs, and timers are not for free.
        if self._alarm is not None and self._alarm.when() > self._due:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = self._loop.call_at(self._due, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._pending is None:
            return
        if self._loop.time() < self._due:
            self._set_alarm()
            return
        # The loop may have been busy elsewhere for long: an answer that lies ready is in time.
        while not self._dying and self._on_readable():
            pass
        if self._pending.done():
            return
        if self._forked:
            self._break(EnvironmentFault("timeout", f"no answer within {self.timeout:g} s"))
        else:
            self._break(HostFault(f"the zygote made no process within {FORK_SECONDS:g} s"))

    def _break(self, fault: EnvironmentFault | HostFault) -> None:
        if self._broken is None:
            self._broken = fault
        self._end(self._broken)

    def _end(self, fault: EnvironmentFault | HostFault | None) -> None:
        """Has the child killed; the call under way fails now, or with the cause once known."""
        if not self._dying:
            self._dying = True
            self._loop.remove_reader(self._stream.fileno())
            self._kill(self.handle)
        if fault is not None and self._pending is not None and not self._pending.done():
            self._pending.set_exception(self._copy(fault))

    def _copy(self, fault: EnvironmentFault | HostFault) -> EnvironmentFault | HostFault:
        """The same fault with no traceback of an earlier raise."""
        if isinstance(fault, HostFault):
            return HostFault(*fault.args)
        return EnvironmentFault(fault.kind, fault.reason, self.output())

    def output(self) -> str:
        """The beginning of what the environment has printed, standard output and error."""
        while not self._printed.closed and (room := self._output_limit - len(self._output)):
            piece = self._printed.read(room)
            if not piece:  # None: no more for now
                break
            self._output += piece
        return self._output.decode("utf-8", "replace")

    def on_forked(self) -> None:
        """The zygote has made the child; only now does its time begin."""
        self._forked = True
        self._due = self._loop.time() + self.timeout
        if self._pending is not None:
            self._set_alarm()

    def on_reaped(self, status: int) -> None:
        """The zygote has reaped the child, which ended with ``status``."""
        while not self._dying and self._on_readable():
            pass  # what it said before the end counts
        self._break(EnvironmentFault(*_cause(status)))
        self._settle()

    def on_lost(self, reason: str) -> None:
        """The zygote is gone, and the child with it."""
        self._broken = HostFault(reason)
        self._end(self._broken)
        self._settle()

    def _settle(self) -> None:
        if not self._reaped.done():
            self._reaped.set_result(None)

    async def discard(self) -> None:
        """Returns when the child is reaped.

        Raises:
          HostFault: the zygote did not reap it in time.
        """
        self._end(self._broken)
        try:
            async with asyncio.timeout(REAP_SECONDS):
                await asyncio.shield(self._reaped)
        except TimeoutError as error:
            raise HostFault(f"child {self.handle} was not reaped in {REAP_SECONDS} s") from error
        finally:
            self._stream.close()
            self._printed.close()
            if self._alarm is not None:
                self._alarm.cancel()


def _cause(status: int) -> tuple[str, str]:
    if os.WIFEXITED(status):
        return "died", f"the process exited with status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "timeout", "the process used up its processor time"
    return "died", f"the process was ended by {signal.Signals(number).name}"
