"""The sampler of one process: it drives the engine from the event loop of whoever asks."""

import asyncio
import concurrent.futures
import contextlib
import typing
from collections.abc import Sequence as Seq

import jax

from spade_jax import config as settings_
from spade_jax.models.transformer import Transformer
from spade_jax.sampling.interface import Completion, Request
from spade_jax.sampling.native.engine import Engine, Plan
from spade_jax.sampling.native.scheduler import Sequence


class NativeSampler:
    """A Sampler that runs the policy's own model."""

    def __init__(self, model: Transformer, settings: settings_.Sampler, seed: int):
        """
        Args:
          model: architecture and first weights (version 0), which are copied.
          seed: of all draws.

        Raises:
          ValueError: the cache cannot hold one sequence of ``settings.context`` tokens, or this
            process alone is no replica.
          ModelError: the model does not divide over this process's devices.
        """
        if settings.hosts_per_replica > 1:
            raise ValueError(
                f"sampler.hosts_per_replica={settings.hosts_per_replica}: one process samples "
                "here; set it to 0 or 1"
            )
        devices = jax.local_devices()[: None if settings.hosts_per_replica else 1]
        self._engine = Engine(model, settings, seed, devices)
        self._answers: dict[Sequence, asyncio.Future[Completion]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "sampler")

    @property
    def version(self) -> int:
        """Of the weights that sample now."""
        return self._engine.version

    async def generate(self, requests: Seq[Request]) -> list[Completion]:
        """Completions in the order of the requests; see :class:`Sampler`."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Completion]] = []
        mine: list[Sequence] = []
        for request in requests:
            answer: asyncio.Future[Completion] = loop.create_future()
            answers.append(answer)
            if reason := self._engine.refusal(request):
                answer.set_result(Completion([], [], "refused", self.version, reason))
                continue
            sequence = self._engine.add(request)
            self._answers[sequence] = answer
            mine.append(sequence)
        if mine and (self._driver is None or self._driver.done()):
            self._driver = asyncio.create_task(self._drive())
        try:
            return list(await asyncio.gather(*answers))
        finally:
            for sequence in mine:  # of a cancelled call: freed when the device is between calls
                if sequence in self._answers:
                    self._answers[sequence].cancel()

    @contextlib.asynccontextmanager
    async def party(self) -> typing.AsyncIterator[None]:
        """Nothing to keep: this sampler waits for nobody."""
        yield

    def release(self, session: str) -> None:
        """Forgets a session's cached prefix."""
        self._engine.release(session)

    def update(self, params: typing.Any, version: int) -> None:
        """New weights; see :meth:`Engine.update`."""
        self._engine.update(params, version)

    def warm_up(self) -> None:
        """Compiles every shape, so that nothing compiles later."""
        self._engine.warm_up()

    def compiled(self) -> int:
        """Programs compiled so far, in this process."""
        return self._engine.compiled()

    async def _drive(self) -> None:
        """Runs calls on the device until there is nothing left to do."""
        loop = asyncio.get_running_loop()
        try:
            while plan := self._next():
                await loop.run_in_executor(self._thread, self._engine.run, plan)
                self._drop_cancelled()
                for sequence, completion in self._engine.finished(plan):
                    self._answers.pop(sequence).set_result(completion)
        except BaseException as error:
            self._engine.reset()
            for answer in self._answers.values():
                if answer.done():
                    continue
                if isinstance(error, Exception):
                    answer.set_exception(error)
                else:
                    answer.cancel()
            self._answers.clear()
            if not isinstance(error, Exception):
                raise

    def _next(self) -> Plan | None:
        """What to run next; None if nobody waits for anything."""
        self._drop_cancelled()
        return self._engine.next()

    def _drop_cancelled(self) -> None:
        for sequence in [s for s, answer in self._answers.items() if answer.done()]:
            self._engine.cancel(sequence)
            del self._answers[sequence]
