"""An SGLang server that samples for real and fails on demand: HTTP on localhost, a thread each.

What it answers was recorded from SGLang 0.5.23; ``test_sglang_contract.py`` holds both to the same
expectations. Before any weights are loaded it is a fixed bigram model; a folder that it is told to
load is run by transformers, so log-probs do not come from the code under test.
"""

import asyncio
import contextlib
import json
import threading

import torch
import transformers
from aiohttp import web

torch.set_num_threads(1)  # the models are tiny; threads would only wait for each other
LOADING = threading.Lock()
"""While it loads, transformers changes global state: two loads at once give random weights."""


class FakeSGLang:
    """One server.

    Attributes:
      url: where it listens, also after :meth:`restart`.
      faults: path -> faults, one for each of the next calls of that path; None is none.
      calls: (path, body) of every call.
      peers: the connection of every call.
      version: label of the weights.
      hold_at: a reply that has this many tokens waits for the next pause; None = none waits.
      holding: how many have come to wait.
      behind: the server that a router passes requests to; None = this is no router.
    """

    def __init__(
        self, vocabulary, key="", admin_key="", raw=False, seconds_a_token=0.0, behind=None, port=0
    ):
        self.vocabulary, self.key, self.admin_key = vocabulary, key, admin_key
        self.raw, self.seconds_a_token, self.behind = raw, seconds_a_token, behind
        self.hold_at, self.holding = None, 0
        self.faults = {"/generate": [], "/update_weights_from_disk": []}
        self.calls, self.peers = [], []
        self._loop, self._port = asyncio.new_event_loop(), port
        self._initial = torch.randn(
            vocabulary, vocabulary, generator=torch.Generator().manual_seed(0)
        )
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """A new process: initial weights, empty cache, not paused."""
        self.version, self._model, self._cache = "default", None, []
        self._draws = torch.Generator().manual_seed(1)
        self._running, self._last = set(), None
        self._do(self._start())

    def stop(self):
        """Connections are refused from here on."""
        self._do(self._runner.cleanup())

    def restart(self):
        self.stop()
        self.start()

    def close(self):
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def paths(self):
        return [path for path, _ in self.calls]

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _start(self):
        self._go = asyncio.Event()
        self._go.set()
        self._mode = "abort"
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/model_info", self._model_info)
        for name in ("generate", "update_weights_from_disk", "flush_cache"):
            app.router.add_post("/" + name, getattr(self, "_" + name))
        app.router.add_post("/pause_generation", self._pause)
        app.router.add_post("/continue_generation", self._continue)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    @web.middleware
    async def _guard(self, request, handler):
        needed = self.key
        if self.admin_key and request.path not in ("/generate", "/model_info"):
            needed = self.admin_key
        if needed and request.headers.get("Authorization") != f"Bearer {needed}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        body = await request.json() if request.can_read_body else None
        self.calls.append((request.path, body))
        self.peers.append(request.transport and request.transport.get_extra_info("peername"))
        waiting = self.faults.get(request.path)
        fault = waiting.pop(0) if waiting else None
        if fault in ("500", "503"):
            return _error(int(fault), "Internal")
        if fault == "reset":
            request.transport.abort()
        if fault == "hang":
            await asyncio.sleep(3600)
        return await handler(request, body, fault)

    async def _model_info(self, request, body, fault):
        return web.json_response({"model_path": "somewhere", "weight_version": self.version})

    async def _flush_cache(self, request, body, fault):
        if self._running and not (not self._go.is_set() and self._mode == "retract"):
            return web.Response(text="Flush cache failed.\n", status=400)
        self._cache.clear()
        return web.Response(text="Cache flushed.\n")

    async def _pause(self, request, body, fault):
        mode = (body or {}).get("mode", "abort")
        if body is None or mode not in ("abort", "in_place", "retract"):
            return _error(400, f"mode {mode}")
        self._mode = mode
        self._go.clear()
        if mode == "abort":
            while self._running:
                await asyncio.sleep(0.001)
        self.hold_at = None
        return web.json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, request, body, fault):
        if body is None:
            return _error(400, "a body is required")
        self._go.set()
        return web.json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def _update_weights_from_disk(self, request, body, fault):
        while self._running and self._go.is_set():
            await asyncio.sleep(0.001)
        if fault == "not advancing":
            return _updated(True, "Succeeded to update model weights.")
        if fault == "failed untouched":
            return _updated(False, "Failed to get weights iterator")
        if "model_path" not in body:
            return _error(400, "model_path is missing")
        try:
            model = await asyncio.to_thread(_load, body["model_path"])
        except (OSError, ValueError) as error:
            return _updated(False, f"Failed to get weights iterator: {error}")
        self._model = model.eval()
        if body.get("flush_cache", True):
            self._cache.clear()
        if fault == "failed but loaded":
            return _updated(False, "The weights were updated, but the cache was not flushed.")
        self.version = body.get("weight_version", self.version)
        return _updated(True, "Succeeded to update model weights.")

    async def _generate(self, request, body, fault):
        if self.behind is not None:  # a router
            return await self.behind._generate(request, body, fault)
        if fault == "restart":
            self.version, self._model = "default", None
        params, tokens = body["sampling_params"], body["input_ids"]
        if (reason := _wrong(params)) or not tokens:
            return _error(400, reason or "input_ids is empty")
        assert all(0 <= token < self.vocabulary for token in tokens), "this kills the server"
        if fault == "duplicate" and self._last:
            return web.json_response(self._last)
        await self._unpaused()
        running = object()
        self._running.add(running)
        try:
            reply = await self._sampled(tokens, params, body.get("rid", "none"))
        finally:
            self._running.discard(running)
        return await self._spoilt(request, reply, fault)

    async def _unpaused(self):
        while not self._go.is_set():  # a router asks from another event loop
            await asyncio.sleep(0.005)

    async def _sampled(self, tokens, params, rid):
        cached = max((_shared(tokens, known) for known in self._cache), default=0)
        out, pairs, labels, finish = list(tokens), [], [], None
        stops = [] if params["ignore_eos"] else params["stop_token_ids"]
        while finish is None:
            await asyncio.sleep(self.seconds_a_token)
            if len(pairs) == self.hold_at:
                self.holding += 1
                while self._go.is_set():
                    await asyncio.sleep(0.005)
            if not self._go.is_set():
                if self._mode == "abort":
                    finish = {"type": "abort", "message": "Aborted", "status_code": None}
                    break
                await self._unpaused()
            token, logp = self._draw(out, params)
            out.append(token)
            pairs.append([logp, token, None])
            labels.append(self.version)
            if token in stops:
                finish = {"type": "stop", "matched": token}
            elif len(pairs) == params["max_new_tokens"]:
                finish = {"type": "length", "length": len(pairs)}
        self._cache.append(out)
        reply = {
            "text": "not looked at",
            "output_ids": out[len(tokens) :],
            "meta_info": {
                "id": rid,
                "finish_reason": finish,
                "prompt_tokens": len(tokens),
                "weight_version": self.version,
                "completion_tokens": len(pairs),
                "cached_tokens": min(cached, len(tokens) - 1),
                "output_token_logprobs": pairs,
                "output_token_logprobs_length": len(pairs),
                "weight_versions": _spans(labels),
            },
        }
        self._last = self._last or reply
        return reply

    @torch.no_grad()
    def _draw(self, tokens, params):
        if self._model is None:
            logits = self._initial[tokens[-1]]
        else:
            logits = self._model(torch.tensor([tokens])).logits[0, -1]
        temperature = params["temperature"] or 1.0
        logp = torch.log_softmax(logits / (1.0 if self.raw else temperature), -1)
        p = torch.softmax(logits / temperature, -1)
        ordered, order = p.sort(descending=True)
        keep = ordered.cumsum(0) - ordered < params["top_p"]
        if params["top_k"] > 0:
            keep[params["top_k"] :] = False
        if params["temperature"] == 0:
            keep[1:] = False
        place = torch.multinomial(ordered * keep, 1, generator=self._draws)
        token = int(order[place])
        return token, float(logp[token])

    async def _spoilt(self, request, reply, fault):
        meta = reply["meta_info"]
        if fault == "aborted without log-probs":
            meta["finish_reason"] = {"type": "abort", "message": "Abort in waiting queue"}
            for name in ("prompt_tokens", "completion_tokens", "output_token_logprobs"):
                del meta[name]
        if fault == "missing fields":
            del meta["output_token_logprobs"]
        text = json.dumps(reply)
        if fault == "truncated":
            return web.Response(text=text[: len(text) // 2], content_type="application/json")
        if fault in ("reset in the middle", "trickle"):
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                for letter in text[:20] if fault == "reset in the middle" else text:
                    await response.write(letter.encode())
                    await asyncio.sleep(0.05 * (fault == "trickle"))
                request.transport.abort()
            return response
        return web.json_response(reply)


def _load(path):
    with LOADING:
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, local_files_only=True
        )


def _error(status, message):
    return web.json_response({"error": {"message": message}}, status=status)


def _updated(success, message):
    answer = {"success": success, "message": message, "num_paused_requests": 0}
    return web.json_response(answer, status=200 if success else 400)


def _wrong(params):
    for name, good in (("max_new_tokens", 1), ("temperature", 0)):
        if params[name] < good:
            return f"{name}={params[name]}"
    known = {
        *("max_new_tokens", "min_new_tokens", "n", "temperature", "top_p", "top_k", "min_p"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "stop", "ignore_eos"),
        *("stop_token_ids", "no_stop_trim", "skip_special_tokens", "sampling_seed"),
    }
    unknown = sorted(params.keys() - known)
    return f"unknown field `{unknown[0]}`" if unknown else ""


def _shared(left, right):
    """Length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
                min(len(left), len(right)))  # fmt: skip


def _spans(labels):
    spans = []
    for place, label in enumerate(labels):
        if not spans or spans[-1]["version"] != label:
            spans.append({"version": label, "start": place, "end": place})
        spans[-1]["end"] = place + 1
    return spans
