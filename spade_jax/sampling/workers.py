"""SGLang servers: the calls of one, and the pool of those that are fit to sample."""

import asyncio
import collections
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from spade_jax.sampling import replies
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sampling.replies import Reply, ServerFault
from spade_jax.sampling.versions import Version

ASK = 10.0  # seconds for a call that does no work
PROBE = 60.0  # seconds for one token of an idle server
PROBED = ([0], [1], [0, 1], [1, 0])  # prompts on which the log-prob convention is looked at
NOT_ASKED = "not asked yet"
LONGEST_PAUSE = 30.0  # seconds between tries to take a server back


class Rejected(Exception):
    """A server says that the request itself is wrong; no other server would say otherwise."""


class NoServer(Exception):
    """No server is left, or none will ever do; names each and why."""


class Worker:
    """The calls of one server.

    Args:
      key: sent with every call; empty = none.
      admin_key: sent with calls that change the server; empty = ``key``.
      holds_weights: False for a router, which passes on generation alone.
      loads: False where another process hands it the weights.

    Attributes:
      ready: fit to sample, with the current weights.
      in_flight: requests sent and not answered.
      trouble: why it is not ready.
    """

    def __init__(
        self,
        url: str,
        http: aiohttp.ClientSession,
        key: str = "",
        admin_key: str = "",
        holds_weights: bool = True,
        loads: bool = True,
    ):
        self.url = url.rstrip("/")
        self.holds_weights, self.loads = holds_weights, loads
        self.ready, self.in_flight, self.trouble = False, 0, NOT_ASKED
        self.suspect = False  # its weights may be anything
        self.hopeless = False  # it cannot do what is needed, and is not asked again
        self._tempered = False  # its log-probs were seen to be those at the sampling temperature
        self._http = http
        self._headers, self._admin_headers = (
            {"Authorization": f"Bearer {secret}"} if secret else {}
            for secret in (key, admin_key or key)
        )

    async def generate(self, body: dict[str, Any], timeout: float) -> Any:
        """The JSON answer of ``/generate``.

        Raises:
          Rejected: the request is wrong.
          ServerFault: it was not served.
        """
        status, answer = await self._call("POST", "/generate", body, timeout)
        if status in (400, 413, 422):
            raise Rejected(f"{self.url}: {_message(answer)}")
        self._require(status == 200, status, answer)
        return answer

    async def label(self) -> str:
        """Label of the weights that it serves."""
        status, answer = await self._call("GET", "/model_info", None, ASK)
        if status == 404:  # before 0.5.7
            status, answer = await self._call("GET", "/get_model_info", None, ASK)
        self._require(status == 200, status, answer)
        label = answer.get("weight_version") if isinstance(answer, dict) else None
        if not isinstance(label, str):
            raise ServerFault(
                "capability",
                f"{self.url} does not say which weights it serves, so none can be handed to it "
                "(sglang-jax has no call for it): use SGLang 0.5.9 or later",
                fatal=True,
            )
        return label

    async def load(self, version: Version, timeout: float) -> None:
        """Pauses, loads, verifies, continues. After a fault it stays paused: nothing samples.

        Requests in flight come back aborted, with what they have. Where another process loads,
        this only verifies.

        Raises:
          ServerFault: it may now hold any weights.
        """
        if not self.loads:
            return await self._require_label(version)
        self.suspect = True
        await self._control("/pause_generation", {"mode": "abort"}, timeout)
        answer = await self._control(
            "/update_weights_from_disk",
            {"model_path": version.path, "weight_version": version.label, "flush_cache": True},
            timeout,
        )
        if not isinstance(answer, dict) or answer.get("success") is not True:
            raise ServerFault("update", f"{self.url}: {_message(answer)}")
        await self._require_label(version)
        await self._control("/continue_generation", {}, ASK)
        if not self._tempered:
            await self._require_tempered()
            self._tempered = True
        self.suspect = False

    async def go_on(self) -> None:
        """Ends a pause; no harm where there is none."""
        await self._control("/continue_generation", {}, ASK)

    async def probe(self, label: str | None) -> None:
        """Samples one token, with the weights ``label`` if given.

        Raises:
          ServerFault: it cannot.
        """
        reply = await self._token([0], SamplingParams(1, temperature=0.0))
        if label is not None and reply.labels != [label]:
            raise ServerFault("stale", f"{self.url} sampled with {reply.labels}, not {label}")

    async def _require_label(self, version: Version) -> None:
        if (label := await self.label()) != version.label:
            raise ServerFault("update", f"{self.url} serves {label!r}, not {version.label}")

    async def _require_tempered(self) -> None:
        """Sees, on weights of ours, that log-probs are those at the sampling temperature.

        The likeliest token, drawn at temperature 1/2 (by a nucleus of almost nothing), has a
        larger log-prob then than at temperature 1, unless the server leaves out the temperature.

        Raises:
          ServerFault: it does.
        """
        gained = 0.0
        for prompt in PROBED:
            cold, warm = [
                await self._token(prompt, SamplingParams(1, temperature, top_p=1e-6))
                for temperature in (0.5, 1.0)
            ]
            gained += sum(cold.logp) - sum(warm.logp)
        if gained < 1e-3:
            raise ServerFault(
                "capability",
                f"{self.url} gives log-probs without the sampling temperature, so importance "
                "ratios would be wrong; start it without SGLANG_RETURN_ORIGINAL_LOGPROB",
                fatal=True,
            )

    async def _token(self, prompt: list[int], params: SamplingParams) -> Reply:
        """One token of an idle server, whatever its weights.

        Raises:
          ServerFault: there is none.
        """
        rid = uuid.uuid4().hex
        try:
            payload = await self.generate(replies.body(prompt, params, 1, rid, 0), PROBE)
        except Rejected as error:
            raise ServerFault("capability", str(error), fatal=True) from error
        return replies.read(payload, rid, 1, 1 << 62)

    async def _control(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        status, answer = await self._call("POST", path, body, timeout, admin=True)
        if status == 404:
            raise ServerFault(
                "capability", f"{self.url} has no {path}: use SGLang 0.5.9 or later", fatal=True
            )
        if status == 400 and path == "/update_weights_from_disk":
            raise ServerFault("update", f"{self.url}: {_message(answer)}")
        self._require(status == 200, status, answer)
        return answer

    async def _call(
        self, method: str, path: str, body: Any, timeout: float, admin: bool = False
    ) -> tuple[int, Any]:
        """Status and answer: JSON where it says so, else text."""
        try:
            async with self._http.request(
                method,
                self.url + path,
                json=body,
                headers=self._admin_headers if admin else self._headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                text = await response.text(errors="replace")
        except TimeoutError as error:
            raise ServerFault("timeout", f"{self.url}{path} took over {timeout} s") from error
        except aiohttp.ClientConnectorError as error:
            raise ServerFault("unreachable", f"{self.url}{path}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ServerFault("broken", f"{self.url}{path}: {error!r}") from error
        if response.status in (401, 403):
            raise ServerFault(
                "key",
                f"{self.url}{path} answers {response.status}: set the environment variable that "
                "holds its key (docs/sglang.md)",
                fatal=True,
            )
        if response.content_type != "application/json":
            return response.status, text
        try:
            return response.status, json.loads(text)
        except ValueError as error:
            raise ServerFault("json", f"{self.url}{path}: {error}") from error

    def _require(self, condition: bool, status: int, answer: Any) -> None:
        if not condition:
            raise ServerFault("status", f"{self.url} answers {status}: {_message(answer)}")


class Pool:
    """The workers that are ready, and the tasks that make the others ready again.

    A worker with a fault leaves. It comes back when it says which weights it serves, has loaded
    the current ones if it serves others, and has sampled a token with them.

    Args:
      limit: requests in flight at one worker; further ones wait here.
      update_timeout: seconds for a worker to load weights.
      patience: seconds without any worker after which waiting is given up.

    Attributes:
      current: the version that every worker must serve; None = whatever it has.
      faults: how many of each kind.
    """

    def __init__(
        self, workers: Sequence[Worker], limit: int, update_timeout: float, patience: float
    ):
        self.workers = list(workers)
        self.current: Version | None = None
        self.faults: collections.Counter[str] = collections.Counter()
        self._limit, self._update_timeout, self._patience = limit, update_timeout, patience
        self._sessions: dict[str, Worker] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._updating = False
        self._fatal: ServerFault | None = None
        self._last_ready = self._last_said = time.monotonic()

    @property
    def _hopeless(self) -> bool:
        return all(worker.hopeless for worker in self.workers)

    @property
    def ready(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.ready]

    async def start(self) -> None:
        """Waits for the first worker; the others come when they can.

        Raises:
          NoServer: none came in time, or one says that none ever will.
        """
        for worker in self.workers:
            self._bring_back(worker)
        await self._until(lambda: bool(self.ready))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def worker(self, session: str | None) -> AsyncIterator[Worker]:
        """The session's worker if it can take a request, else the one with the fewest.

        Raises:
          NoServer: there has been none for too long.
        """
        await self._until(lambda: self._choice(session) is not None)
        worker = self._choice(session)
        assert worker is not None
        if session is not None:
            self._sessions[session] = worker
        worker.in_flight += 1
        try:
            yield worker
        finally:
            worker.in_flight -= 1
            await self._tell()

    def release(self, session: str) -> None:
        """Forgets where a session was."""
        self._sessions.pop(session, None)

    def eject(self, worker: Worker, fault: ServerFault) -> None:
        """Counts a worker's fault; takes it out of the pool until it is fit again."""
        self.faults[fault.kind] += 1
        if worker.ready:
            self._take_out(worker, fault)

    def eject_all(self, fault: ServerFault) -> None:
        """Has every worker show again what it serves; the fault was counted elsewhere."""
        for worker in self.ready:
            self._take_out(worker, fault)

    async def update(self, version: Version) -> None:
        """Has every worker load ``version``; those that fail are out until they have.

        Raises:
          NoServer: none has, for too long.
        """
        self.current, self._updating = version, True
        loading = self.ready
        for worker in loading:
            worker.ready = False
        try:
            await asyncio.gather(*(self._load(worker, version) for worker in loading))
        finally:
            self._updating = False
            self._last_ready = time.monotonic()
        await self._until(lambda: bool(self.ready))

    async def _load(self, worker: Worker, version: Version) -> None:
        try:
            await worker.load(version, self._update_timeout)
            worker.ready = True
        except ServerFault as fault:
            self.faults[fault.kind] += 1
            self._take_out(worker, fault)
        await self._tell()

    def _choice(self, session: str | None) -> Worker | None:
        free = [worker for worker in self.ready if worker.in_flight < self._limit]
        sticky = self._sessions.get(session) if session is not None else None
        if sticky in free:
            return sticky
        return min(free, key=lambda worker: worker.in_flight, default=None)

    def _take_out(self, worker: Worker, fault: ServerFault) -> None:
        worker.ready, worker.trouble = False, str(fault)
        self._last_ready = time.monotonic()
        logging.warning("%s leaves the pool: %s", worker.url, fault)
        self._bring_back(worker)

    def _bring_back(self, worker: Worker) -> None:
        task = asyncio.get_running_loop().create_task(self._qualify(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _qualify(self, worker: Worker) -> None:
        """Tries until the worker is ready."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause or 0.1, LONGEST_PAUSE)
            version = self.current
            try:
                if worker.holds_weights:
                    label = await worker.label()
                    if version is None and worker.loads:
                        await worker.go_on()  # who was killed while it loaded left it paused
                    if version is not None and (worker.suspect or label != version.label):
                        await worker.load(version, self._update_timeout)
                wanted = version.label if version and worker.holds_weights else None
                await worker.probe(wanted)
            except ServerFault as fault:
                self.faults[fault.kind] += 1
                worker.trouble = str(fault)
                if fault.fatal:
                    logging.warning("%s stays out: %s", worker.url, fault)
                    self._fatal, worker.hopeless = fault, True
                    await self._tell()
                    return
                continue
            if version is self.current:
                if worker.trouble != NOT_ASKED:  # somebody may have read of it
                    logging.warning("%s is in the pool", worker.url)
                worker.ready, worker.trouble = True, ""
                await self._tell()
                return
            pause = 0.0  # there were new weights meanwhile

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Any) -> None:
        """Waits for ``condition``, saying so while no worker is there."""
        async with self._changed:
            while not condition():
                now = time.monotonic()
                if self.ready or self._updating:
                    self._last_ready = now
                elif self._hopeless or now - self._last_ready > self._patience:
                    raise NoServer(self._why())
                elif now - self._last_said > LONGEST_PAUSE:
                    self._last_said = now
                    logging.warning("waiting for a server; %s", self._why())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(1.0, self._patience)):
                        await self._changed.wait()
            if self.ready:
                self._last_ready = time.monotonic()

    def _why(self) -> str:
        if self._hopeless:
            return str(self._fatal)
        troubles = "; ".join(worker.trouble for worker in self.workers)
        return f"no SGLang server is fit to sample ({troubles}). Start one, or look at its log"


def _message(answer: Any) -> str:
    """What an answer says went wrong; servers have several shapes for it."""
    if isinstance(answer, dict):
        answer = answer.get("error", answer)
    if isinstance(answer, dict):
        answer = answer.get("message", answer)
    return str(answer)[:500]
