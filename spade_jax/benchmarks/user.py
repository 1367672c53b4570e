"""Who plays the user where a benchmark's dialogues have one: the policy itself, or a server.

What a user says decides who wins, so results of different users are not comparable. The paper's
have ``gpt-4.1``; those with any other user carry its label and stand beside no published figure.
"""

import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from spade_jax.benchmarks.endpoint import EndpointPolicy
from spade_jax.benchmarks.interface import Message, Policy, Talk, Unanswered
from spade_jax.sampling.interface import SamplingParams

KEY = "SPADE_USER_API_KEY"
"""Environment variable with the key of the user's server."""
LOCAL = "local user simulator"
PAPERS = re.compile(r"(.*/)?gpt-4\.1(-\d{4}-\d\d-\d\d)?")
"""Names of the model that plays the user in the paper's results."""


@dataclasses.dataclass(frozen=True)
class User:
    """Plays the user.

    Attributes:
      policy: that does; None = the policy that is scored.
      model: what ``policy``'s server calls it.
      url: of that server.
    """

    policy: Policy | None = None
    model: str = ""
    url: str = ""

    @property
    def label(self) -> str:
        """What results are called that do not compare with published ones; '' if they do."""
        if self.policy is None:
            return LOCAL
        return "" if PAPERS.fullmatch(self.model) else f"user simulator {self.model}"

    def protocol(self) -> dict[str, Any]:
        """What a result says of its user, and the label of the results if they have one."""
        if self.policy is None:
            return {"user": "the policy itself", "label": self.label}
        named = {"model": self.model, "url": self.url, "prompts": self.policy.protocol()}
        return {"user": named} | ({"label": self.label} if self.label else {})

    @contextlib.asynccontextmanager
    async def talk(
        self,
        player: Policy,
        name: str,
        params: SamplingParams,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> AsyncIterator[Talk]:
        """The user's side of a dialogue, as :meth:`Policy.talk`: here the user is the one to reply.

        Args:
          player: the policy that is scored.
          name: of the dialogue, which ``player`` holds its own side of under the same.
          messages: told to the user: what it is to do, what was said to it.
        """
        policy = self.policy or player
        async with policy.talk(f"{name}/user", params, messages, tools) as talk:
            yield _UserTalk(talk)


SELF = User()


@dataclasses.dataclass
class _UserTalk:
    """A talk whose silence is named as the user's."""

    inner: Talk

    async def reply(self) -> str:
        try:
            return await self.inner.reply()
        except Unanswered as reason:
            raise Unanswered(f"user: {reason}") from reason

    def tell(self, messages: Sequence[Message]) -> None:
        self.inner.tell(messages)


@contextlib.asynccontextmanager
async def at(url: str, model: str, seed: int, timeout: float) -> AsyncIterator[User]:
    """The user that answers at an OpenAI-compatible server; '' = the policy that is scored.

    Args:
      url: base URL, up to and with ``/v1``.
      model: to ask for there; '' = the one that the server names first.
      timeout: seconds of one reply.

    Raises:
      Broken: the server names no model.
    """
    if not url:
        yield SELF
        return
    async with EndpointPolicy(url, model, seed, timeout, KEY) as policy:
        yield User(policy, policy.model, policy.url)
