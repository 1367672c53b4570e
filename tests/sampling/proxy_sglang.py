"""What is in front of a real SGLang server, and spoils its answers on demand."""

import asyncio

import aiohttp
from aiohttp import web
from fake_sglang import FakeSGLang


class Proxy(FakeSGLang):
    """Passes calls on to ``real``, and spoils those that ``faults`` says; see FakeSGLang.

    Faults besides those: 'refused' closes the door for a second; a 'restart' puts ``initial``
    weights back under the label of a fresh server.
    """

    def __init__(self, real, initial):
        self.real, self.initial = real, initial
        super().__init__(vocabulary=2)

    async def _pass_on(self, request, body, path=None):
        """Status and JSON of the server behind."""
        async with (
            aiohttp.ClientSession() as http,
            http.request(request.method, self.real + (path or request.path), json=body) as answer,
        ):
            return answer.status, await answer.json()

    async def _passed(self, request, body, fault):
        status, answer = await self._pass_on(request, body)
        return web.json_response(answer, status=status)

    _model_info = _pause = _continue = _passed

    async def _update_weights_from_disk(self, request, body, fault):
        if fault == "not advancing":
            return web.json_response({"success": True, "message": "Succeeded."})
        status, answer = await self._pass_on(request, body)
        if fault == "failed but loaded":
            return web.json_response({**answer, "success": False}, status=400)
        return web.json_response(answer, status=status)

    async def _generate(self, request, body, fault):
        if fault == "refused":
            self._refusing = asyncio.create_task(self._refuse())
        if fault == "restart":
            initial = {"model_path": str(self.initial), "weight_version": "default"}
            await self._pass_on(request, initial, "/update_weights_from_disk")
        if fault == "duplicate" and self._last:
            return web.json_response(self._last)
        status, reply = await self._pass_on(request, body)
        if status != 200:
            return web.json_response(reply, status=status)
        self._last = self._last or reply
        return await self._spoilt(request, reply, fault)

    async def _refuse(self):
        await self._runner.cleanup()
        await asyncio.sleep(1)
        await self._start()
