"""The engine: continuous batching over a paged KV cache, one call of the device after another.

Memory: the weights in decoding form (a copy), the cache (``sampler.cache_mb`` at most), and for
the length of a call the gathered pages of its rows (at most as much again).

Every shape that runs is one of :class:`Shapes`; :meth:`Engine.warm_up` compiles them all.

Weights change between two calls. Requests in flight then either finish on the old ones, while new
requests wait, or go on with the new ones, their keys and values computed again; ``sampler.updates``
says which.

What it does next is a function of what it was told, in which order, and of nothing else: engines
of several processes that are told the same between the same calls run the same programs.
"""

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

Plan = CopyPlan | PrefillPlan | DecodePlan


class Engine:
    """Weights, cache and queue on the devices that sample as one."""

    def __init__(
        self,
        model: Transformer,
        settings: settings_.Sampler,
        seed: int,
        devices: Seq[jax.Device],
    ):
        """
        Args:
          model: architecture and first weights (version 0), which are copied.
          seed: of all draws.

        Raises:
          ValueError: the cache cannot hold one sequence of ``settings.context`` tokens.
          ModelError: the model does not divide over ``devices``.
        """
        graphdef, params = nnx.split(model)
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
        self._live: set[Sequence] = set()
        self._device = threading.Lock()

    def refusal(self, request: Request) -> str:
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

    def add(self, request: Request) -> Sequence:
        """Takes a request that is not refused."""
        tokens = [int(token) for token in request.tokens]
        limit = min(len(tokens) + request.params.max_tokens, self._context)
        sequence = Sequence(request, noise_key(self._seed, request.uid), tokens, limit)
        self._live.add(sequence)
        if self._arrived and self._settings.updates == "finish":
            self._held.append(sequence)
        else:
            self._scheduler.add(sequence)
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """Forgets a request and frees its memory; to be called between calls."""
        self._live.remove(sequence)
        if sequence in self._held:
            self._held.remove(sequence)
        self._scheduler.cancel(sequence)

    def release(self, session: str) -> None:
        """Forgets a session's cached prefix."""
        self._scheduler.pages.release(session)

    def update(self, params: typing.Any, version: int) -> None:
        """Copies new weights; they sample from the next call on, or once those in flight are done.

        Every cached prefix is dropped when they begin. Of several updates that wait, the last
        counts.
        """
        self._arrived = self._replica.weights(self._forward, params), version
        if not self._live:
            self._swap()

    def next(self) -> Plan | None:
        """What to run next; None if nothing waits or runs."""
        if self._arrived and (self._settings.updates == "continue" or self._scheduler.empty):
            self._swap()
        return self._scheduler.plan()

    def run(self, plan: Plan) -> None:
        """One call of the device."""
        with self._device, self._replica.entered():
            if isinstance(plan, CopyPlan):
                self._run_copy(plan)
            elif isinstance(plan, PrefillPlan):
                self._run_prefill(plan)
            else:
                self._run_decode(plan)

    def finished(self, plan: Plan) -> list[tuple[Sequence, Completion]]:
        """What ended with a call that has run; none of those that were cancelled meanwhile."""
        if not isinstance(plan, DecodePlan):
            return []
        done = []
        for sequence in plan.sequences:
            stopped = sequence.tokens[-1] in sequence.request.params.stop_ids
            if sequence in self._live and (stopped or len(sequence.tokens) >= sequence.limit):
                done.append((sequence, self._completion(sequence, stopped)))
                self._scheduler.finish(sequence)
                self._live.remove(sequence)
        return done

    def wait(self) -> None:
        """Until the device has done all that was started."""
        jax.block_until_ready((self._pools, self._weights, self._arrived))

    def reset(self) -> None:
        """Forgets all requests and prefixes: after an error the cache may be gone."""
        with self._device:
            self._pools = self._replica.pools(self._forward, self._scheduler.pages.count)
            self._scheduler.clear()
        self._held.clear()
        self._live.clear()
        if self._arrived:
            self._swap()

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

    def _swap(self) -> None:
        """Takes the weights that have arrived, between calls."""
        assert self._arrived is not None
        (self._weights, self.version), self._arrived = self._arrived, None
        self._scheduler.recompute()
        for sequence in self._held:
            self._scheduler.add(sequence)
        self._held.clear()

    def _completion(self, sequence: Sequence, stopped: bool) -> Completion:
        return Completion(
            sequence.tokens[-len(sequence.logp) :],
            sequence.logp,
            "stop" if stopped else "length",
            sequence.versions[-1],
            versions=sequence.versions,
            experts=self._experts(sequence) if self._forward.recorded else "",
        )

    def _experts(self, sequence: Sequence) -> str:
        """Of the tokens that are cached: all but the last."""
        pages = self._scheduler.shapes.length(sequence.cached, PAGE_SIZE)
        page_p = np.zeros(pages, np.int32)
        used = sequence.pages[:pages]
        page_p[: len(used)] = used
        with self._device, self._replica.entered():
            expert_tlk = np.asarray(self._forward.experts(self._pools, page_p))
        return experts.encode(expert_tlk[: sequence.cached])

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
