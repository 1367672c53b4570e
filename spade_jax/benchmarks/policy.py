"""A policy behind the sampler contract, as a benchmark talks with it."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from spade_jax.benchmarks import in_words
from spade_jax.benchmarks.interface import Broken, Message, Unanswered
from spade_jax.sampling.interface import Request, Sampler, SamplingParams
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay.agent import Conversation


class SamplerPolicy:
    """Talks by tokens: what was sampled stays in the dialogue as it is.

    Where the chat template has no place for tools, they are described in the first message, and
    what they return is told in a user message.

    Args:
      context: tokens of a dialogue, the reply included; at that length it ends.
    """

    def __init__(self, sampler: Sampler, renderer: Renderer, context: int):
        self._sampler, self._renderer, self._context = sampler, renderer, context
        self._has_tools = _shows_tools(renderer)

    def protocol(self) -> dict[str, Any]:
        """What the renderer makes of a short dialogue stands for the chat template."""
        probe: list[Message] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        rendered = self._renderer.prompt(probe)
        return {
            "context": self._context,
            "tools": "chat template" if self._has_tools else "in words",
            "words": "" if self._has_tools else in_words.digest(),
            "template": _digest(json.dumps(rendered)),
        }

    @contextlib.asynccontextmanager
    async def talk(
        self,
        name: str,
        params: SamplingParams,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> AsyncIterator["SampledTalk"]:
        """A dialogue; its sampler session lasts as long."""
        spoken = bool(tools) and not self._has_tools
        if spoken:
            messages, tools = in_words.with_tools(messages, tools), ()
        params = dataclasses.replace(params, stop_ids=self._renderer.stop_ids)
        conversation = Conversation(self._renderer, list(messages), tools)
        async with self._sampler.party():
            try:
                yield SampledTalk(
                    self._sampler,
                    self._renderer,
                    conversation,
                    name,
                    params,
                    self._context,
                    spoken,
                )
            finally:
                self._sampler.release(name)


@dataclasses.dataclass
class SampledTalk:
    """One dialogue of a :class:`SamplerPolicy`."""

    sampler: Sampler
    renderer: Renderer
    conversation: Conversation
    name: str
    params: SamplingParams
    context: int
    spoken: bool
    replies: int = 0

    async def reply(self) -> str:
        """The next reply, special tokens left out; one that was cut short is one too.

        Raises:
          Unanswered: the dialogue fills the context, or the sampler refused.
          Broken: the sampler failed.
        """
        tokens = self.conversation.tokens
        room = self.context - len(tokens)
        if room <= 0:
            raise Unanswered(f"context: {len(tokens)} tokens of at most {self.context}")
        params = dataclasses.replace(self.params, max_tokens=min(self.params.max_tokens, room))
        uid = f"{self.name}/{self.replies}"
        request = Request(list(tokens), params, uid, session=self.name)
        try:
            (completion,) = await self.sampler.generate([request])
        except Exception as error:
            raise Broken(f"the sampler failed: {type(error).__name__}: {error}") from error
        if completion.finish_reason == "refused":
            raise Unanswered(f"refused: {completion.refusal}")
        self.replies += 1
        self.conversation.sampled(completion)
        return self.renderer.decode(completion.tokens)

    def tell(self, messages: Sequence[Message]) -> None:
        self.conversation.observed(in_words.told(messages) if self.spoken else list(messages))


def _shows_tools(renderer: Renderer) -> bool:
    name = "look_up"
    tool = {"name": name, "description": "Looks.", "parameters": {"type": "dict", "properties": {}}}
    return name in renderer.decode(renderer.prompt([{"role": "user", "content": "a"}], [tool]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
