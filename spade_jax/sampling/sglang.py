"""A sampler whose model runs on SGLang servers elsewhere: https://github.com/sgl-project/sglang.

Servers hang, restart, lag and answer late. What is handed out was sampled with weights at least as
new as those of the moment of asking; everything else is asked for again, elsewhere, and counted.

All calls are made on a thread of their own, so that servers are looked after while the caller's
event loop waits for a device.

Of several processes each asks the servers for its own completions; all write the weights, and the
first one has the servers load them.
"""

import asyncio
import collections
import contextlib
import functools
import os
import threading
import time
import typing
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path

import aiohttp

from spade_jax import config as settings_
from spade_jax.models.config import ModelConfig
from spade_jax.models.group import Group, Single, in_all
from spade_jax.sampling import replies
from spade_jax.sampling.interface import Completion, Request, SamplingParams
from spade_jax.sampling.replies import Reply, ServerFault
from spade_jax.sampling.versions import Version, Versions
from spade_jax.sampling.workers import NoServer as NoServer
from spade_jax.sampling.workers import Pool, Rejected, Worker

API_KEY = "SPADE_SGLANG_API_KEY"
"""Environment variable with the servers' ``--api-key``."""
ADMIN_KEY = "SPADE_SGLANG_ADMIN_KEY"
"""Environment variable with the servers' ``--admin-api-key``."""
# Seconds for which an idle connection is kept: less than the 5 after which a server (uvicorn)
# closes it, or a request that is sent at that moment meets a reset.
KEPT = 2.0
TRIES = 5  # of one completion, without a single token more

T = typing.TypeVar("T")


class SGLangSampler:
    """A Sampler; a context manager, because it owns connections and a thread.

    Randomness depends on (seed, uid, position) alone if the servers were started with
    ``--enable-deterministic-inference``; otherwise it is the servers' own.

    Args:
      model: the architecture, to write weights with and to check ids against.
      tokenizer: is written beside the weights.
      dtype: of the weights as written.
      workdir: the run directory, for weights unless ``settings.weights`` says otherwise.
      group: the processes that have such a sampler and call :meth:`update` and :meth:`metrics`
        together; None = this one alone.

    Raises:
      NoServer: there is none, or one cannot do what is needed; from ``with``.
    """

    def __init__(
        self,
        model: ModelConfig,
        tokenizer: typing.Any,
        settings: settings_.Sampler,
        dtype: str,
        seed: int,
        workdir: Path,
        group: Group | None = None,
    ):
        self._group = group or Single()
        folder = Path(settings.weights) if settings.weights else workdir / "weights"
        self._versions = Versions(
            folder, settings.weights_seen_as, model, tokenizer, dtype, self._group
        )
        self._numbers: dict[str, int] = {}  # label -> version number
        self._vocabulary, self._settings, self._seed = model.vocabulary, settings, seed
        self._counts: collections.Counter[str] = collections.Counter()
        self._version: int | None = None
        self._bytes = 0
        self._seconds: dict[str, float] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sglang")

    def __enter__(self) -> "SGLangSampler":
        self._thread.start()
        try:
            self._wait(self._open())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Completions in the order of ``requests``; one that no server served is refused.

        Raises:
          NoServer: there has been none for ``sampler.patience`` seconds.
        """
        future = asyncio.run_coroutine_threadsafe(self._generate(requests), self._loop)
        return await asyncio.wrap_future(future)

    @contextlib.asynccontextmanager
    async def party(self) -> typing.AsyncIterator[None]:
        """Nothing to keep: this sampler waits for nobody."""
        yield

    def release(self, session: str) -> None:
        """Forgets which server a session's prefix is at."""
        self._loop.call_soon_threadsafe(self._front.release, session)

    def update(self, params: typing.Any, version: int) -> None:
        """Writes the weights and has every server load them; prefixes are dropped there.

        Requests in flight are aborted by the servers and continued with the new weights.

        Raises:
          NoServer: none could load them for ``sampler.patience`` seconds.
          Exception: another process of the group failed.
        """
        self._numbers[self._versions.label(version)] = version
        started = time.monotonic()
        written = self._versions.write(params, version)
        self._seconds["time/weights_write"] = time.monotonic() - started
        started = time.monotonic()
        first = self._group.index == 0
        load = functools.partial(self._load, written)
        in_all(self._group, "the loading of weights", load if first else lambda: None)
        if not first:
            load()  # sees that they are there
        self._seconds["time/weights_load"] = time.monotonic() - started
        self._bytes = written.bytes

    def metrics(self) -> dict[str, float]:
        """What happened to all processes since the last call, by the names of docs/metrics.md."""
        own = self._wait(self._take_counts())
        counts, faults = collections.Counter[str](), collections.Counter[str]()
        for told in self._group.gather("the counts of the sampler", own):
            counts.update(told[0])
            faults.update(told[1])
        return {
            "sampler/servers": len(self._servers.ready),
            "sampler/tempered_logp": 1,  # anything else was refused
            "sampler/cached": counts["cached_tokens"] / max(1, counts["prompt_tokens"]),
            "sampler/faults": faults.total(),
            **{f"sampler/faults/{kind}": count for kind, count in sorted(faults.items())},
            **{
                f"sampler/{name}": counts[name]
                for name in ("continued", "given_up", "older_tokens")
            },
            "weights/bytes": self._bytes,
            **self._seconds,
        }

    async def _open(self) -> None:
        settings = self._settings
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT)
        self._http = aiohttp.ClientSession(connector=connector)
        key, admin = os.environ.get(API_KEY, ""), os.environ.get(ADMIN_KEY, "")
        urls = [url.strip() for url in settings.urls.split(",") if url.strip()]
        loads = self._group.index == 0
        servers = [Worker(url, self._http, key, admin, loads=loads) for url in urls]
        waits = settings.update_timeout, settings.patience
        self._servers = self._front = Pool(servers, settings.in_flight, *waits)
        if settings.router:
            router = Worker(settings.router, self._http, key, holds_weights=False)
            self._front = Pool([router], settings.in_flight * len(servers), *waits)
        await self._servers.start()
        if self._front is not self._servers:
            await self._front.start()

    async def _close(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for name in ("_servers", "_front", "_http"):
            if hasattr(self, name):
                await getattr(self, name).close()

    def _wait(self, coroutine: Coroutine[typing.Any, typing.Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _load(self, written: Version) -> None:
        self._wait(self._servers.update(written))
        self._version = written.number

    async def _take_counts(self) -> tuple[collections.Counter[str], collections.Counter[str]]:
        """Counts, and faults of servers by kind, since the last call."""
        counts, faults = self._counts, collections.Counter[str]()
        self._counts = collections.Counter()
        for pool in {self._servers, self._front}:
            faults += pool.faults
            pool.faults = collections.Counter()
        return counts, faults

    async def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        if self._version is None and not self._numbers:
            raise RuntimeError("no weights were handed over yet; call update first")
        tasks = [self._loop.create_task(self._complete(request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _complete(self, request: Request) -> Completion:
        """Asks until the completion is whole: partial replies are continued, others forgotten."""
        params, prompt = request.params, [int(token) for token in request.tokens]
        if reason := self._refusal(prompt, params):
            return self._refused(reason)
        limit = min(params.max_tokens, self._settings.context - len(prompt))
        tokens: list[int] = []
        logp: list[float] = []
        versions: list[int] = []
        tries = 0
        while True:
            try:
                reply = await self._ask(request, [*prompt, *tokens], limit - len(tokens))
            except Rejected as error:
                return self._refused(str(error))
            except ServerFault as fault:
                tries += 1
                if tries == TRIES:
                    self._counts["given_up"] += 1
                    return self._refused(f"{TRIES} tries failed, the last one: {fault}")
                continue
            tries = 0 if reply.tokens else tries + 1
            tokens += reply.tokens
            logp += reply.logp
            versions += [self._numbers[label] for label in reply.labels]
            if tokens and tokens[-1] in params.stop_ids:
                return self._completion(tokens, logp, "stop", versions)
            if len(tokens) == limit:
                return self._completion(tokens, logp, "length", versions)
            if tries == TRIES:
                self._counts["given_up"] += 1
                return self._refused(f"aborted {TRIES} times without a token")
            self._counts["continued"] += 1

    async def _ask(self, request: Request, tokens: list[int], limit: int) -> Reply:
        """One exchange with one server.

        Raises:
          Rejected: the request is wrong.
          ServerFault: no reply, or one that must not be used; the server is out of the pool.
        """
        floor = self._version or 0
        rid = uuid.uuid4().hex
        seed = replies.seed_of(self._seed, request.uid)
        body = replies.body(tokens, request.params, limit, rid, seed)
        async with self._front.worker(request.session) as worker:
            try:
                payload = await worker.generate(body, self._settings.timeout)
                reply = replies.read(payload, rid, limit, self._vocabulary)
                for label in set(reply.labels):
                    if self._numbers.get(label, -1) < floor:
                        raise ServerFault(
                            "stale", f"{worker.url} sampled with {label!r}, older than {floor}"
                        )
            except ServerFault as fault:
                self._front.eject(worker, fault)
                if fault.kind == "stale" and self._front is not self._servers:
                    self._servers.eject_all(fault)
                raise
        self._counts["prompt_tokens"] += reply.prompt_tokens
        self._counts["cached_tokens"] += reply.cached_tokens
        return reply

    def _completion(
        self,
        tokens: list[int],
        logp: list[float],
        reason: typing.Literal["stop", "length"],
        versions: list[int],
    ) -> Completion:
        mixed = versions if len(set(versions)) > 1 else []
        self._counts["older_tokens"] += sum(version < (self._version or 0) for version in versions)
        return Completion(tokens, logp, reason, versions[-1], versions=mixed)

    def _refused(self, reason: str) -> Completion:
        return Completion([], [], "refused", self._version or 0, reason)

    def _refusal(self, tokens: list[int], params: SamplingParams) -> str:
        """Why a request is not sent. An id outside the vocabulary would end the server."""
        if not tokens:
            return "no prompt tokens"
        if len(tokens) >= self._settings.context:
            room = f"sampler.context={self._settings.context}"
            return f"{len(tokens)} prompt tokens leave no room in {room}"
        for token in (*tokens, *params.stop_ids):
            if not 0 <= token < self._vocabulary:
                return f"token id {token} outside the vocabulary of {self._vocabulary}"
        if params.max_tokens < 1:
            return f"max_tokens={params.max_tokens}, must be at least 1"
        return ""
