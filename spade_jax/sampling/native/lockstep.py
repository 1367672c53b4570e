"""The sampler of a process whose devices sample as one with those of others.

Each process of the replica has one and calls it as it likes. Before each call of the device all
tell each other what they were asked since the last; what comes next is a function of that
(:mod:`.engine`), so all run the same programs in the same order, and whoever asked gets the answer.

It runs in a thread of its own: the others need this process's devices whatever its event loop does.
Where nothing is left to do all of them wait until one rings.
"""

import asyncio
import contextlib
import dataclasses
import threading
import types
import typing
from collections.abc import Sequence as Seq
from concurrent.futures import Future

import jax

from spade_jax import config as settings_
from spade_jax.models.group import Group
from spade_jax.models.transformer import Transformer
from spade_jax.sampling.interface import Completion, Request, SamplingParams
from spade_jax.sampling.native.engine import Engine, Plan
from spade_jax.sampling.native.scheduler import Sequence

PARTING = 60.0
"""Seconds for which a process that fails waits until the others have read why."""


class Peers(Group, typing.Protocol):
    """The processes of a replica; ``members`` are their indices in JAX."""

    members: Seq[int]

    def ring(self) -> None:
        """Ends the :meth:`wait` of all: the present one, or the next."""
        ...

    def wait(self) -> None:
        """Until one of them rings."""
        ...


@dataclasses.dataclass
class Asked:
    """What a process was asked since the last call of the device, as JSON holds it.

    Attributes:
      requests: each with the number by which this process knows it.
      cancelled: such numbers.
      update, end: whether new weights wait, and whether it is closed: said until all say it.
    """

    requests: list[tuple[int, dict[str, typing.Any]]] = dataclasses.field(default_factory=list)
    cancelled: list[int] = dataclasses.field(default_factory=list)
    released: list[str] = dataclasses.field(default_factory=list)
    update: bool = False
    end: bool = False


class LockstepSampler:
    """A Sampler that runs the policy's own model on the devices of several processes.

    All of them make it, update it and close it together; in between each generates at will. While
    one does, none may start a program of its own that spans them: the two would begin in different
    orders and wait for each other. The loop's exchanges see to that.
    """

    def __init__(self, model: Transformer, settings: settings_.Sampler, seed: int, peers: Peers):
        """As :class:`~spade_jax.sampling.native.sampler.NativeSampler`; ``peers``: the processes
        whose devices sample as one, this one among them."""
        devices = [device for device in jax.devices() if device.process_index in peers.members]
        devices.sort(key=lambda device: (device.process_index, device.id))
        self._engine = Engine(model, settings, seed, devices)
        self._peers = peers
        self._open: dict[Sequence, tuple[int, int]] = {}  # process and number of all requests
        self._done = False

        self._lock = threading.Lock()  # over what the thread and its callers share
        self._asked, self._news, self._asleep, self._closed = Asked(), False, False, False
        self._answers: dict[int, Future[Completion]] = {}
        self._count = 0
        self._update: tuple[typing.Any, int, Future[None]] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._drive, name="sampler", daemon=True)
        self._thread.start()

    def __enter__(self) -> "LockstepSampler":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Ends it when all processes have come here; with an error at once, and theirs with it."""
        with self._lock:
            self._closed = True
            if isinstance(error, Exception) and self._error is None:
                self._error = error
            self._wake()
        self._thread.join(PARTING if self._error else None)

    @property
    def version(self) -> int:
        """Of the weights that sample now."""
        return self._engine.version

    async def generate(self, requests: Seq[Request]) -> list[Completion]:
        """Completions in the order of the requests; see :class:`Sampler`.

        Who is cancelled waits until no process samples for it any more.

        Raises:
          Exception: what ended the sampler, here or in another process.
        """
        answers: list[Future[Completion]] = []
        mine: list[int] = []
        asked = [(self._engine.refusal(request), _plain(request)) for request in requests]
        with self._told():
            for reason, request in asked:
                answers.append(Future())
                if reason:
                    refused = Completion([], [], "refused", self.version, reason)
                    answers[-1].set_result(refused)
                    continue
                self._count += 1
                self._answers[self._count] = answers[-1]
                self._asked.requests.append((self._count, request))
                mine.append(self._count)
        each = [asyncio.wrap_future(answer) for answer in answers]
        waiting = asyncio.gather(*each)
        try:
            return list(await asyncio.shield(waiting))
        except asyncio.CancelledError:
            with contextlib.suppress(Exception), self._told():
                self._asked.cancelled += mine
            # Not ``waiting``: the first that is cancelled ends it.
            await asyncio.gather(*each, return_exceptions=True)
            waiting.exception()  # known, and of no use any more
            raise

    @contextlib.asynccontextmanager
    async def party(self) -> typing.AsyncIterator[None]:
        """Nothing to keep: this sampler waits for nobody."""
        yield

    def release(self, session: str) -> None:
        """Forgets a session's cached prefix."""
        with self._told():
            self._asked.released.append(session)

    def update(self, params: typing.Any, version: int) -> None:
        """New weights, once all processes have come here; see :meth:`Engine.update`.

        Raises:
          Exception: what ended the sampler, here or in another process.
        """
        taken: Future[None] = Future()
        with self._told():
            self._update = params, version, taken
        taken.result()

    def compiled(self) -> int:
        """Programs compiled so far, in this process."""
        return self._engine.compiled()

    @contextlib.contextmanager
    def _told(self) -> typing.Iterator[None]:
        """Around what is asked."""
        with self._lock:
            if self._error is not None:
                raise self._error
            yield
            self._wake()

    def _wake(self) -> None:
        self._news = True
        if self._asleep:
            self._peers.ring()

    def _drive(self) -> None:
        """Samples until all processes are closed or one fails."""
        try:
            while not self._done:
                self._sleep()
                while plan := self._agree():
                    self._engine.run(plan)
                    for sequence, completion in self._engine.finished(plan):
                        if answer := self._take(sequence):
                            answer.set_result(completion)
            error: Exception = RuntimeError("the sampler is closed")
        except Exception as raised:
            error = raised
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # the others are gone
                self._peers.ring()
            self._peers.fail(error)
        with self._lock:
            self._error, self._asleep = error, False
            waiting: list[Future[typing.Any]] = [*self._answers.values()]
            if self._update:
                waiting.append(self._update[2])
            for future in waiting:
                future.set_exception(error)

    def _sleep(self) -> None:
        """Until a process was asked for something."""
        with self._lock:
            self._asleep = True
            if self._news:
                self._peers.ring()
        self._peers.wait()
        with self._lock:
            self._asleep = False

    def _agree(self) -> Plan | None:
        """Takes what all processes were asked; what to run next, the same in all of them."""
        with self._lock:
            if self._error is not None:
                raise self._error
            own, self._asked, self._news = self._asked, Asked(), False
            own.update, own.end = self._update is not None, self._closed
        told = self._peers.gather("a step of the sampler", vars(own))
        everyone = [Asked(**asked) for asked in told]
        renewed = all(asked.update for asked in everyone)
        if renewed or any(asked.cancelled for asked in everyone):
            self._engine.wait()  # who asked goes on to other programs: none is to meet one of ours
        for process, asked in enumerate(everyone):
            for number, request in asked.requests:
                self._open[self._engine.add(_request(request))] = process, number
            for sequence, (owner, number) in list(self._open.items()):
                if owner == process and number in asked.cancelled:
                    self._engine.cancel(sequence)
                    if answer := self._take(sequence):
                        answer.cancel()
            for session in asked.released:
                self._engine.release(session)
        if self._update and renewed:
            params, version, taken = self._update
            self._engine.update(params, version)
            self._engine.wait()
            self._update = None
            taken.set_result(None)
        self._done = all(asked.end for asked in everyone)
        return None if self._done else self._engine.next()

    def _take(self, sequence: Sequence) -> Future[Completion] | None:
        """Forgets a request; its answer, if this process was asked for it."""
        process, number = self._open.pop(sequence)
        if process != self._peers.index:
            return None
        with self._lock:
            return self._answers.pop(number)


def _plain(request: Request) -> dict[str, typing.Any]:
    """As JSON holds it."""
    params = request.params
    return {
        "tokens": [int(token) for token in request.tokens],
        "uid": request.uid,
        "session": request.session,
        "params": {
            "max_tokens": int(params.max_tokens),
            "temperature": float(params.temperature),
            "top_p": float(params.top_p),
            "top_k": int(params.top_k),
            "min_p": float(params.min_p),
            "stop_ids": [int(token) for token in params.stop_ids],
        },
    }


def _request(plain: dict[str, typing.Any]) -> Request:
    """Out of :func:`_plain`."""
    params = SamplingParams(**plain["params"] | {"stop_ids": tuple(plain["params"]["stop_ids"])})
    return Request(plain["tokens"], params, plain["uid"], plain["session"])
