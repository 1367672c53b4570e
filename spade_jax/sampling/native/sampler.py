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
from spade_jax.sampling import weights
from spade_jax.sampling.interface import Completion, Request, SamplingParams
from spade_jax.sampling.native.draw import Draw, noise_key
from spade_jax.sampling.native.forward import Decode, Forward, Prefill, Weights
from spade_jax.sampling.native.pages import Pages
from spade_jax.sampling.native.scheduler import (
    CopyPlan,
    DecodePlan,
    PrefillPlan,
    Scheduler,
    Sequence,
    Shapes,
)

PAGE_SIZE = 16  # tokens
MAX_STOP_IDS = 16


class NativeSampler:
    """A Sampler that runs the policy's own model."""

    def __init__(self, model: Transformer, settings: settings_.Sampler, seed: int):
        """
        Args:
          model: architecture and first weights (version 0), copied to the first device.
          seed: of all draws.

        Raises:
          ValueError: the cache cannot hold one sequence of ``settings.context`` tokens.
        """
        graphdef, params = nnx.split(model)
        self._place = jax.local_devices()[0]
        params = weights.on_device(params, self._place)
        self._forward = Forward.of(graphdef, params, PAGE_SIZE)
        self._vocabulary, self._context = model.config.vocabulary, settings.context
        page_bytes = PAGE_SIZE * self._forward.token_bytes()
        pages = min(
            settings.cache_mb * 2**20 // page_bytes,
            2 * settings.slots * -(-settings.context // PAGE_SIZE),
        )
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
        self._pools = jax.device_put(self._forward.pools(pages), self._place)
        self._weights = self._forward.weights(params)
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
        decoding = self._forward.weights(weights.on_device(params, self._place))
        self._arrived = decoding, version
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
        with self._device:
            self._run_copy(CopyPlan([]))
            for shape in shapes.prefills():
                self._run_prefill(PrefillPlan([], [], *shape))
            for rows, pages in shapes.decodes():
                self._run_decode(DecodePlan([], rows, pages))

    def compiled(self) -> int:
        """Programs compiled so far, in this process."""
        programs: list[typing.Any] = [Forward.copy, Forward.prefill, Forward.decode]
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
                self._pools = self._forward.pools(self._scheduler.pages.count)
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
                )
            )
            self._scheduler.finish(sequence)
            del self._answers[sequence]

    def _run(self, plan: CopyPlan | PrefillPlan | DecodePlan) -> None:
        with self._device:
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
        batch = self._prefill_batch(plan)
        self._pools = self._forward.prefill(self._weights, self._pools, batch)
        for sequence, count in zip(plan.sequences, plan.counts, strict=True):
            sequence.cached += count

    def _prefill_batch(self, plan: PrefillPlan) -> Prefill:
        batch = Prefill(
            token_rt=np.zeros((plan.rows, plan.chunk), np.int32),
            count_r=np.zeros(plan.rows, np.int32),
            start_r=np.zeros(plan.rows, np.int32),
            page_rp=np.zeros((plan.rows, plan.pages), np.int32),
            write_rt=np.full((plan.rows, plan.chunk), self._nowhere, np.int32),
        )
        for row, (sequence, count) in enumerate(zip(plan.sequences, plan.counts, strict=True)):
            start = sequence.cached
            batch.token_rt[row, :count] = sequence.tokens[start : start + count]
            batch.count_r[row], batch.start_r[row] = count, start
            _fill_pages(batch.page_rp[row], sequence.pages)
            batch.write_rt[row, :count] = _places(sequence.pages, start, count)
        return batch

    def _run_decode(self, plan: DecodePlan) -> None:
        batch = self._decode_batch(plan)
        self._pools, *drawn = self._forward.decode(self._weights, self._pools, batch)
        token_bs, logp_bs, count_b = jax.device_get(drawn)
        for row, sequence in enumerate(plan.sequences):
            count = int(count_b[row])
            sequence.tokens += token_bs[row, :count].tolist()
            sequence.logp += logp_bs[row, :count].tolist()
            sequence.versions += [self.version] * count
            sequence.cached += count
            sequence.served += 1

    def _decode_batch(self, plan: DecodePlan) -> Decode:
        rows, steps = plan.rows, self._settings.decode_steps
        params = [sequence.request.params for sequence in plan.sequences]
        how = Draw(
            key_bc=np.zeros((rows, 2), np.uint32),
            temperature_b=_column([p.temperature for p in params], rows, np.float32),
            top_p_b=_column([p.top_p for p in params], rows, np.float32, 1.0),
            min_p_b=_column([p.min_p for p in params], rows, np.float32),
            top_k_b=_column([p.top_k for p in params], rows, np.int32),
            noisy=np.bool_(any(p.temperature > 0 for p in params)),
            truncated=np.bool_(any(p.top_p < 1 or p.min_p > 0 or p.top_k > 0 for p in params)),
        )
        batch = Decode(
            token_b=np.zeros(rows, np.int32),
            start_b=np.zeros(rows, np.int32),
            limit_b=np.zeros(rows, np.int32),
            page_bp=np.zeros((rows, plan.pages), np.int32),
            write_bs=np.full((rows, steps), self._nowhere, np.int32),
            stop_bm=np.full((rows, MAX_STOP_IDS), -1, np.int32),
            how=how,
        )
        for row, sequence in enumerate(plan.sequences):
            count = min(steps, sequence.limit - len(sequence.tokens))
            batch.token_b[row], batch.start_b[row] = sequence.tokens[-1], sequence.cached
            batch.limit_b[row] = count
            _fill_pages(batch.page_bp[row], sequence.pages)
            batch.write_bs[row, :count] = _places(sequence.pages, sequence.cached, count)
            stop_ids = sequence.request.params.stop_ids
            batch.stop_bm[row, : len(stop_ids)] = stop_ids
            how.key_bc[row] = sequence.noise_key
        return batch

    @property
    def _nowhere(self) -> int:
        return self._scheduler.pages.count * PAGE_SIZE

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


def _column(values: list, rows: int, dtype: type, rest: float = 0.0) -> np.ndarray:
    return np.array(values + [rest] * (rows - len(values)), dtype)


def _fill_pages(page_p: np.ndarray, pages: list[int]) -> None:
    count = min(len(page_p), len(pages))
    page_p[:count] = pages[:count]


def _places(pages: list[int], start: int, count: int) -> np.ndarray:
    """Places in the flattened pool of positions start … start + count."""
    position = np.arange(start, start + count)
    return np.asarray(pages, np.int32)[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
