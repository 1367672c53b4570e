"""The engine: continuous batching of requests over a paged KV cache, in this process.

Memory: the weights in decoding form (a copy), the cache (``sampler.cache_mb`` at most), and for
the length of a call the gathered pages of its rows (at most as much again).

Every shape that runs is one of :class:`Shapes`; :meth:`NativeSampler.warm_up` compiles them all.

Weights change between two calls. Requests in flight then either finish on the old ones, while new
requests wait, or go on with the new ones, their keys and values computed again; ``sampler.updates``
says which.
"""

import asyncio
import concurrent.futures
import contextlib
import math
import threading
import typing
from collections.abc import Sequence as Seq

import jax
import numpy as np
from flax import nnx

from spade_jax import config as settings_
from spade_jax.models.transformer import Transformer
from spade_jax.sampling import experts
from spade_jax.sampling.interface import Completion, Request, SamplingParams
from spade_jax.sampling.native import batches, memory
from spade_jax.sampling.native.batches import MAX_STOP_IDS
from spade_jax.sampling.native.draw import noise_key
from spade_jax.sampling.native.forward import Forward, Weights
from spade_jax.sampling.native.memory import PAGE_SIZE
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.replica import Replica
from spade_jax.sampling.native.scheduler import (
    CopyPlan,
    DecodePlan,
    PrefillPlan,
    Scheduler,
    Sequence,
    Shapes,
)


class NativeSampler:
    """A Sampler that runs the policy's own model."""

    def __init__(self, model: Transformer, settings: settings_.Sampler, seed: int):
        """
        Args:
          model: architecture and first weights (version 0), which are copied.
          seed: of all draws.

        Raises:
          ValueError: the cache cannot hold one sequence of ``settings.context`` tokens.
          ModelError: the model does not divide over this process's devices.
        """
        graphdef, params = nnx.split(model)
        devices = jax.local_devices()[: None if settings.hosts_per_replica else 1]
        self._replica = Replica.of(model.config, devices)
        self._forward = Forward.of(graphdef, params, PAGE_SIZE, settings.replay_experts)
        self._vocabulary, self._context = model.config.vocabulary, settings.context
        pages = memory.cache_pages(settings, self._forward.token_bytes())
        if pages * PAGE_SIZE < settings.context:
            need = -(-settings.context * self._forward.token_bytes() // 2**20)
            raise ValueError(
                f"sampler.cache_mb={settings.cache_mb} holds {pages * PAGE_SIZE} tokens, less than "
                f"sampler.context={settings.context}; raise it to {need} or lower the context"
            )
        self._settings, self._seed = settings, seed
        shapes = Shapes.choose(
            settings.slots, settings.prefill_chunk, settings.context, PAGE_SIZE, pages
        )
        self._scheduler = Scheduler(
            Pages(pages, PAGE_SIZE), shapes, settings.slots, settings.decode_steps
        )
        self._pools = self._replica.pools(self._forward, pages)
        self._weights = self._replica.weights(self._forward, params)
        self.version = 0
        self._arrived: tuple[Weights, int] | None = None  # weights that wait for a call to end
        self._held: list[Sequence] = []  # requests that wait for those weights
        self._answers: dict[Sequence, asyncio.Future[Completion]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._device = threading.Lock()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "sampler")

    async def generate(self, requests: Seq[Request]) -> list[Completion]:
        """Completions in the order of the requests; see :class:`Sampler`."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Completion]] = []
        mine: list[Sequence] = []
        for request in requests:
            answer: asyncio.Future[Completion] = loop.create_future()
            answers.append(answer)
            if reason := self._refusal(request):
                answer.set_result(Completion([], [], "refused", self.version, reason))
                continue
            tokens = [int(token) for token in request.tokens]
            limit = min(len(tokens) + request.params.max_tokens, self._context)
            sequence = Sequence(request, noise_key(self._seed, request.uid), tokens, limit)
            self._answers[sequence] = answer
            if self._arrived and self._settings.updates == "finish":
                self._held.append(sequence)
            else:
                self._scheduler.add(sequence)
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
        self._scheduler.pages.release(session)

    def update(self, params: typing.Any, version: int) -> None:
        """Copies new weights; they sample from the next call on, or once those in flight are done.

        Every cached prefix is dropped when they begin. Of several updates that wait, the last
        counts.
        """
        self._arrived = self._replica.weights(self._forward, params), version
        if not self._answers:
            self._swap()

    def _swap(self) -> None:
        """Takes the weights that have arrived, between calls."""
        assert self._arrived is not None
        (self._weights, self.version), self._arrived = self._arrived, None
        self._scheduler.recompute()
        for sequence in self._held:
            self._scheduler.add(sequence)
        self._held.clear()

    def warm_up(self) -> None:
        """Compiles every shape, so that nothing compiles later."""
        shapes = self._scheduler.shapes
        with self._device, self._replica.entered():
            self._run_copy(CopyPlan([]))
            for shape in shapes.prefills():
                self._run_prefill(PrefillPlan([], [], *shape))
            for rows, pages in shapes.decodes():
                self._run_decode(DecodePlan([], rows, pages))
            if self._forward.recorded:
                for pages in shapes.pages:
                    self._forward.experts(self._pools, np.zeros(pages, np.int32))

    def compiled(self) -> int:
        """Programs compiled so far, in this process."""
        programs: list[typing.Any] = [
            Forward.copy,
            Forward.prefill,
            Forward.decode,
            Forward.experts,
        ]
        return sum(program._cache_size() for program in programs)

    async def _drive(self) -> None:
        """Runs calls on the device until there is nothing left to do."""
        loop = asyncio.get_running_loop()
        try:
            while plan := self._next():
                await loop.run_in_executor(self._thread, self._run, plan)
                if isinstance(plan, DecodePlan):
                    self._finish(plan.sequences)
        except BaseException as error:
            with self._device:
                self._pools = self._replica.pools(self._forward, self._scheduler.pages.count)
                self._scheduler.clear()
            if self._arrived:
                self._held.clear()
                self._swap()
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

    def _next(self) -> CopyPlan | PrefillPlan | DecodePlan | None:
        """What to run next; None if nobody waits for anything."""
        for sequence in [s for s, answer in self._answers.items() if answer.done()]:
            if sequence in self._held:
                self._held.remove(sequence)
            self._scheduler.cancel(sequence)
            del self._answers[sequence]
        if self._arrived and (self._settings.updates == "continue" or self._scheduler.empty):
            self._swap()
        return self._scheduler.plan()

    def _finish(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            stop_ids = sequence.request.params.stop_ids
            stopped = sequence.tokens[-1] in stop_ids
            if not stopped and len(sequence.tokens) < sequence.limit:
                continue
            answer = self._answers[sequence]
            if answer.done():
                continue
            drawn = sequence.tokens[-len(sequence.logp) :]
            reason: typing.Literal["stop", "length"] = "stop" if stopped else "length"
            answer.set_result(
                Completion(
                    drawn,
                    sequence.logp,
                    reason,
                    sequence.versions[-1],
                    versions=sequence.versions,
                    experts=self._experts(sequence) if self._forward.recorded else "",
                )
            )
            self._scheduler.finish(sequence)
            del self._answers[sequence]

    def _experts(self, sequence: Sequence) -> str:
        """Of the tokens that are cached: all but the last."""
        pages = self._scheduler.shapes.length(sequence.cached, PAGE_SIZE)
        page_p = np.zeros(pages, np.int32)
        used = sequence.pages[:pages]
        page_p[: len(used)] = used
        with self._device, self._replica.entered():
            expert_tlk = np.asarray(self._forward.experts(self._pools, page_p))
        return experts.encode(expert_tlk[: sequence.cached])

    def _run(self, plan: CopyPlan | PrefillPlan | DecodePlan) -> None:
        with self._device, self._replica.entered():
            if isinstance(plan, CopyPlan):
                self._run_copy(plan)
            elif isinstance(plan, PrefillPlan):
                self._run_prefill(plan)
            else:
                self._run_decode(plan)

    def _run_copy(self, plan: CopyPlan) -> None:
        from_p = np.zeros(self._settings.slots, np.int32)
        to_p = np.full(self._settings.slots, self._scheduler.pages.count, np.int32)
        for place, pair in enumerate(plan.pairs):
            from_p[place], to_p[place] = pair
        self._pools = self._forward.copy(self._pools, from_p, to_p)

    def _run_prefill(self, plan: PrefillPlan) -> None:
        batch = batches.prefill(plan, self._scheduler.pages.count)
        self._pools = self._forward.prefill(self._weights, self._pools, batch)
        for sequence, count in zip(plan.sequences, plan.counts, strict=True):
            sequence.cached += count

    def _run_decode(self, plan: DecodePlan) -> None:
        steps = self._settings.decode_steps
        batch = batches.decode(plan, steps, self._scheduler.pages.count)
        self._pools, *drawn = self._forward.decode(self._weights, self._pools, batch)
        token_bs, logp_bs, count_b = jax.device_get(drawn)
        for row, sequence in enumerate(plan.sequences):
            count = int(count_b[row])
            sequence.tokens += token_bs[row, :count].tolist()
            sequence.logp += logp_bs[row, :count].tolist()
            sequence.versions += [self.version] * count
            sequence.cached += count
            sequence.served += 1

    def _refusal(self, request: Request) -> str:
        """Why a request cannot be served; empty if it can."""
        tokens, params = request.tokens, request.params
        if len(tokens) == 0:
            return "no prompt tokens"
        if len(tokens) >= self._context:
            return f"{len(tokens)} prompt tokens leave no room in sampler.context={self._context}"
        for token in tokens:
            if not 0 <= token < self._vocabulary:
                return f"token id {token} outside the vocabulary of {self._vocabulary}"
        return _params_refusal(params)


def _params_refusal(params: SamplingParams) -> str:
    if params.max_tokens < 1:
        return f"max_tokens={params.max_tokens}, must be at least 1"
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        return f"temperature={params.temperature}, must be finite and not negative"
    if not 0 < params.top_p <= 1:
        return f"top_p={params.top_p}, must lie in (0, 1]"
    if not 0 <= params.min_p <= 1:
        return f"min_p={params.min_p}, must lie in [0, 1]"
    if params.top_k < 0:
        return f"top_k={params.top_k}, must not be negative"
    if len(params.stop_ids) > MAX_STOP_IDS:
        return f"{len(params.stop_ids)} stop ids, at most {MAX_STOP_IDS}"
    return ""
