"""A policy behind any server that speaks the OpenAI chat protocol."""

import asyncio
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp

from spade_jax.benchmarks import in_words
from spade_jax.benchmarks.interface import Broken, Message, Unanswered
from spade_jax.sampling.interface import SamplingParams

KEY = "SPADE_EVAL_API_KEY"
"""Environment variable with the key of the server that is scored; without it no key is sent."""
TRIES = 10
PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds; doubled after every try
AGAIN = {408, 409, 425, 429}
HOPELESS = {401, 403, 404}


class EndpointPolicy:
    """Talks by messages; an asynchronous context manager that holds the connections.

    Functions are described in the first message, and what they return is told in user messages.

    Args:
      url: base URL, up to and with ``/v1``.
      model: to ask for there; '' = the one that the server names first.
      timeout: seconds of one reply.
      key: environment variable with the server's key.
    """

    def __init__(self, url: str, model: str, seed: int, timeout: float, key: str = KEY):
        self.url, self.model = url.rstrip("/"), model
        self._seed, self._timeout, self._key = seed, timeout, key

    async def __aenter__(self) -> "EndpointPolicy":
        headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(self._key)) else {}
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)
        try:
            if not self.model:
                listed = await self._ask("GET", "models", None)
                self.model = listed["data"][0]["id"]
        except (LookupError, TypeError, Unanswered) as error:
            await self._session.close()
            raise Broken(f"{self.url}/models names no model ({error}); give --model") from error
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def protocol(self) -> dict[str, Any]:
        return {"context": "the server's", "tools": "in words", "words": in_words.digest()}

    @contextlib.asynccontextmanager
    async def talk(
        self,
        name: str,
        params: SamplingParams,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> AsyncIterator["EndpointTalk"]:
        """A dialogue; the server is sent all of it for every reply."""
        told = in_words.with_tools(messages, tools) if tools else messages
        yield EndpointTalk(self, name, params, list(told))

    async def complete(self, uid: str, params: SamplingParams, messages: Sequence[Message]) -> str:
        """The server's reply to a dialogue; one that was cut short is one too.

        Raises:
          Unanswered: the server refuses this dialogue.
          Broken: it could not be reached, or failed, ``TRIES`` times, or refuses us.
        """
        seed = hashlib.sha256(f"{self._seed}/{uid}".encode()).digest()
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": int.from_bytes(seed[:4], "big") >> 1,
        }
        # No part of the OpenAI protocol, but SGLang and vLLM know them.
        extra = {"top_k": params.top_k, "min_p": params.min_p}
        answer = await self._ask(
            "POST", "chat/completions", body | {key: value for key, value in extra.items() if value}
        )
        try:
            content = answer["choices"][0]["message"]["content"]
        except (LookupError, TypeError) as error:
            raise Unanswered(f"no message in the server's reply: {answer!s:.200}") from error
        return content if isinstance(content, str) else ""

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        pause, reason = PAUSE, ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            try:
                async with self._session.request(method, f"{self.url}/{path}", json=body) as answer:
                    if answer.status == 200:
                        return await answer.json(content_type=None)
                    reason = f"status {answer.status}: {(await answer.text())[:300]}"
                    if answer.status in HOPELESS:
                        break
                    if answer.status < 500 and answer.status not in AGAIN:
                        raise Unanswered(reason)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
        raise Broken(f"{self.url}/{path}: {reason}")


@dataclasses.dataclass
class EndpointTalk:
    """One dialogue of an :class:`EndpointPolicy`."""

    policy: EndpointPolicy
    name: str
    params: SamplingParams
    messages: list[Message]
    replies: int = 0

    async def reply(self) -> str:
        """The server's next message; see :meth:`EndpointPolicy.complete`."""
        uid = f"{self.name}/{self.replies}"
        reply = await self.policy.complete(uid, self.params, self.messages)
        self.replies += 1
        self.messages.append({"role": "assistant", "content": reply})
        return reply

    def tell(self, messages: Sequence[Message]) -> None:
        self.messages += in_words.told(messages)
