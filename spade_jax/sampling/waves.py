"""Deterministic mode: requests reach the sampler in waves, not as the clock has it.

A *party* is a coroutine that asks for completions: an episode, a designer. Its requests park.
When every live party is parked or gone, all parked requests go to the inner sampler as one batch
ordered by uid, and every answer is handed out when the whole batch is back. What a batch holds is
then a function of the run alone, while a party stays a plain coroutine.

A party that waits for another one outside the sampler (a full semaphore that a parked party
holds) waits for ever: let parties own what they need before they ask.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import typing
from collections.abc import AsyncIterator, Coroutine, Sequence

from spade_jax.sampling.interface import Completion, Request, Sampler

T = typing.TypeVar("T")


class _Party:
    """Identity of one coroutine that asks for completions."""


@dataclasses.dataclass
class _Parked:
    requests: Sequence[Request]
    answer: asyncio.Future[list[Completion]]


_current: contextvars.ContextVar[_Party | None] = contextvars.ContextVar("party", default=None)


class Waves:
    """A Sampler that forwards requests to another one in waves."""

    def __init__(self, inner: Sampler):
        self._inner = inner
        self._live: set[_Party] = set()
        self._parked: dict[_Party, _Parked] = {}
        self._released: set[str] = set()
        self._wave: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def party(self) -> AsyncIterator[None]:
        """Takes part from here to the end of the block: no wave leaves without this coroutine.

        Which wave is the first one is up to the moment of entry; :meth:`gather` enters all
        parties before any of them runs. Within a party it is that party: a coroutine is one,
        however many dialogues it holds.
        """
        if _current.get() in self._live:
            yield
            return
        party = _Party()
        self._live.add(party)
        try:
            with _acting_as(party):
                yield
        finally:
            self._leave(party)

    async def gather(self, *coroutines: Coroutine[typing.Any, typing.Any, T]) -> list[T]:
        """``asyncio.gather`` with every coroutine a party from the start.

        If one raises, the others are cancelled and the error is raised.
        """
        tasks = []
        for coroutine in coroutines:
            party = _Party()
            self._live.add(party)
            with _acting_as(party):  # the task copies the context it is created in
                task = asyncio.create_task(coroutine)
            task.add_done_callback(functools.partial(self._leave, party))
            tasks.append(task)
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Parks the requests until the next wave. Outside any party, a party of this one call.

        Raises:
          RuntimeError: this party is parked already; put both calls' requests into one call.
        """
        party = _current.get()
        if party not in self._live:
            async with self.party():
                return await self.generate(requests)
        if party in self._parked:
            raise RuntimeError(
                "a party called generate twice at once; pass all its requests in one call"
            )
        parked = _Parked(requests, asyncio.get_running_loop().create_future())
        self._parked[party] = parked
        self._consider()
        try:
            return await parked.answer
        finally:
            if self._parked.get(party) is parked:
                del self._parked[party]

    def release(self, session: str) -> None:
        """Forwarded when the next wave leaves, in name order, so that it has no clock in it."""
        self._released.add(session)
        self._consider()

    def update(self, params: typing.Any, version: int) -> None:
        """Forwarded at once, after the releases that are due: the inner sampler's contract."""
        self._forward_releases()
        self._inner.update(params, version)

    def _leave(self, party: _Party, _task: object = None) -> None:
        self._live.discard(party)
        self._consider()

    def _consider(self) -> None:
        """Looks, a turn of the event loop later, whether anybody is left to wait for.

        The turn lets tasks that were started together all become parties first.
        """
        if self._live:
            asyncio.get_running_loop().call_soon(self._depart)
        else:
            self._forward_releases()

    def _depart(self) -> None:
        if self._wave is None and self._live and self._live == self._parked.keys():
            self._forward_releases()
            self._wave = asyncio.create_task(self._send(list(self._parked.values())))

    async def _send(self, parked: list[_Parked]) -> None:
        places = [
            (request.uid, i, j)
            for i, p in enumerate(parked)
            for j, request in enumerate(p.requests)
        ]
        places.sort(key=lambda place: place[0])
        answers: list[dict[int, Completion]] = [{} for _ in parked]
        try:
            completions = await self._inner.generate([parked[i].requests[j] for _, i, j in places])
            for (_, i, j), completion in zip(places, completions, strict=True):
                answers[i][j] = completion
        except asyncio.CancelledError:
            for p in parked:
                p.answer.cancel()
            raise
        except Exception as error:
            for p in parked:
                if not p.answer.done():
                    p.answer.set_exception(error)
        else:
            for p, answer in zip(parked, answers, strict=True):
                if not p.answer.done():
                    p.answer.set_result([answer[j] for j in range(len(p.requests))])
        finally:
            self._wave = None
            for party in [q for q, p in self._parked.items() if p.answer.done()]:
                del self._parked[party]
            self._consider()

    def _forward_releases(self) -> None:
        for session in sorted(self._released):
            self._inner.release(session)
        self._released.clear()


@contextlib.contextmanager
def _acting_as(party: _Party) -> typing.Iterator[None]:
    token = _current.set(party)
    try:
        yield
    finally:
        _current.reset(token)
