"""The processes of one run under ``jax.distributed``: start, exchange, and end of all with one.

Values travel through the key-value store of JAX's coordination service, not through a collective
of the devices: a wait there has a deadline and knows who is missing. A process that dies is also
missed by JAX's own heartbeat, which ends the others while they wait for its devices.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
import typing
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import distributed  # the only door to the key-value store; Orbax uses it too

from spade_jax import config
from spade_jax.models.group import Group, Single
from spade_jax.selfplay.exchange import Alone, Exchange

log = logging.getLogger(__name__)

GOODBYE = 30.0
"""Seconds for which process 0, which hosts the store, stays to let the others read why it ends."""


class ProcessFault(RuntimeError):
    """Another process of the run is missing or has failed: the message says which."""


def join(coordinator: str, count: int, index: int) -> None:
    """Makes this process one of several; to be called before anything else of JAX.

    Args:
      coordinator: HOST:PORT of process 0; '' = let JAX find all three (TPU pods, Slurm, MPI, ...).

    Raises:
      config.ConfigError: an argument is missing, or the cluster cannot be found or reached.
    """
    try:
        if coordinator:
            jax.distributed.initialize(coordinator, count, index)
        else:
            jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        raise config.ConfigError(
            f"--distributed: {error}. On a cluster that JAX does not know give every process "
            "--coordinator=HOST:PORT of the first, --processes=N and its own --process=I"
        ) from error


def exchange(settings: config.Processes) -> Exchange:
    """For the processes that JAX knows of."""
    return Processes(settings.deadline) if jax.process_count() > 1 else Alone()


def group(settings: config.Processes) -> Group:
    """The same processes, for what they make together beside self-play: weights on disk."""
    return Processes(settings.deadline, "group") if jax.process_count() > 1 else Single()


def replica(settings: config.Processes, hosts: int) -> "Processes":
    """The ``hosts`` of them whose devices sample as one with those of this process.

    Raises:
      config.ConfigError: ``hosts`` does not divide their number.
    """
    count, own = jax.process_count(), jax.process_index()
    if count % hosts:
        works = [0, *(number for number in range(1, count + 1) if count % number == 0)]
        raise config.ConfigError(
            f"config.sampler.hosts_per_replica: {hosts} does not divide the number of processes, "
            f"{count}; what works: {_listed(works)}"
        )
    first = own - own % hosts
    return Processes(settings.deadline, f"replica {first}", range(first, first + hosts))


def end(code: int) -> typing.NoReturn:
    """Ends this process. One of several does not wait for the others, as JAX's own exit would."""
    if not jax.distributed.is_initialized():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Processes:
    """An :class:`Exchange`, a :class:`Group` and :class:`Peers` by JAX's coordination service.

    A process that was told to stop or failed says so in the message of its next exchange, so that
    all learn of it at the same place. Waiting for others cannot be cancelled: who is cancelled
    there goes on with them and has all stop at the exchange after.
    """

    def __init__(
        self, deadline: float, name: str = "exchange", members: Sequence[int] | None = None
    ):
        """``name`` keeps what is said here apart from others' words.

        Args:
          deadline: seconds to wait for the others at one exchange.
          members: their indices in JAX, this one's among them; None = all.
        """
        self.members = members or range(jax.process_count())
        self.index, self.count = self.members.index(jax.process_index()), len(self.members)
        self._deadline, self._name = deadline, name
        self._client: Any = distributed.global_state.client
        self._round = self._woken = 0
        self._stopping = self._stopped = self._left = False

    async def all_gather(self, what: str, value: Any) -> list[Any]:
        """See :class:`Exchange`.

        Raises:
          ProcessFault: a process is missing when the deadline is over, failed, or is elsewhere.
        """
        if self._left:
            raise asyncio.CancelledError
        message = {"what": what, "value": value} if not self._stopping else {"stop": True}
        waiting = asyncio.create_task(asyncio.to_thread(self._gather, what, message))
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                self._stopping = True
        messages = waiting.result()
        if any("stop" in found for found in messages):
            self._stopped = True
            raise asyncio.CancelledError
        return self._values(what, messages)

    def gather(self, what: str, value: Any) -> list[Any]:
        """See :class:`Group`. Raises as :meth:`all_gather`."""
        return self._values(what, self._gather(what, {"what": what, "value": value}))

    def _values(self, what: str, messages: list[dict[str, Any]]) -> list[Any]:
        for index, found in enumerate(messages):
            if found["what"] != what:
                raise ProcessFault(
                    f"process {self.members[index]} exchanges {found['what']} where process "
                    f"{self.members[self.index]} has {what}: give all processes the same program, "
                    "configuration and directory"
                )
        return [found["value"] for found in messages]

    async def stop(self) -> None:
        """See :class:`Exchange`."""
        self._stopping = True
        while not self._stopped:
            try:
                await self.all_gather("the end", None)
            except asyncio.CancelledError:
                continue

    def leave(self) -> None:
        """See :class:`Exchange`."""
        self._left = True

    def fail(self, error: Exception) -> None:
        """See :class:`Exchange`."""
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # the store is gone, and we follow
            self._send({"failed": f"{type(error).__name__}: {error}"})
            broken = isinstance(error, jax.errors.JaxRuntimeError)  # by whom?
            until = time.monotonic() + GOODBYE
            while (self.index == 0 or broken) and not isinstance(error, ProcessFault):
                missing = self._missing(self._round)
                if not missing or time.monotonic() >= until:
                    break
                time.sleep(0.1)
            if broken and missing:
                log.error("process %s of %d: no sign of it", _listed(missing), jax.process_count())
            time.sleep(1)  # they read after they have come

    def ring(self) -> None:
        """See :class:`Peers`."""
        self._client.key_value_set_bytes(self._bell(self._woken + 1), b"", allow_overwrite=True)

    def wait(self) -> None:
        """See :class:`Peers`. What ends a process that others wait for ends this one too."""
        while True:
            try:
                self._client.blocking_key_value_get_bytes(self._bell(self._woken + 1), 60_000)
                break
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
        self._woken += 1
        if self.index == 0:  # all have exchanged something since they heard the one before
            self._client.key_value_delete(self._bell(self._woken - 1))

    def _gather(self, what: str, message: dict[str, Any]) -> list[dict[str, Any]]:
        self._send(message)
        until = time.monotonic() + self._deadline
        messages = []
        for index in range(self.count):
            left = max(0.0, until - time.monotonic())
            try:
                found = self._client.blocking_key_value_get_bytes(
                    self._key(self._round, index), round(1000 * left)
                )
            except jax.errors.JaxRuntimeError as error:
                names = _listed(self._missing(self._round))
                raise ProcessFault(
                    f"process {names} of {jax.process_count()} did not come to exchange {what} "
                    f"within {self._deadline:g} s (config.processes.deadline): gone or stuck, see "
                    "its log. The same command continues the run"
                ) from error
            messages.append(json.loads(found))
        for index, message in enumerate(messages):
            if "failed" in message:
                raise ProcessFault(f"process {self.members[index]} failed: {message['failed']}")
        if self._round > 1:  # all have come here, so all have read what was before
            self._client.key_value_delete(self._key(self._round - 1, self.index))
        return messages

    def _send(self, message: dict[str, Any]) -> None:
        """Makes ``message`` this process's part of the next round."""
        self._round += 1
        text = json.dumps(message).encode()
        self._client.key_value_set_bytes(self._key(self._round, self.index), text)

    def _missing(self, number: int) -> list[int]:
        """Processes, by their indices in JAX, that have not come to a round."""
        missing = []
        for index in range(self.count):
            try:
                self._client.key_value_try_get_bytes(self._key(number, index))
            except jax.errors.JaxRuntimeError:
                missing.append(self.members[index])
        return missing

    def _bell(self, number: int) -> str:
        return f"spade_jax/{self._name}/bell/{number}"

    def _key(self, number: int, index: int) -> str:
        return f"spade_jax/{self._name}/{number}/{index}"


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))
