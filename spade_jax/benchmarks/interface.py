"""What a benchmark is, and what it may ask of the policy that it scores."""

import contextlib
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.sampling.interface import SamplingParams

Message = dict[str, str]
WON = 1 - 1e-6
Figures = Mapping[str, Mapping[str, float]]
"""Row, such as a published one -> column, or ``mean`` -> per cent."""


class Absent(RuntimeError):
    """Data or a package that a benchmark needs is not here: what is missing, how to get it."""

    def __init__(self, reason: str, command: str):
        super().__init__(f"{reason}. Get it with: {command}")
        self.reason, self.command = reason, command


class Unanswered(Exception):
    """The policy gave no reply, and why; the item is lost."""


class Broken(RuntimeError):
    """The policy can answer nobody any more: the evaluation ends, to be continued."""


@dataclasses.dataclass(frozen=True)
class Item:
    """One attempt to be made at a problem.

    Attributes:
      name: unique in the benchmark.
      column: a score is made for each.
      problem: items that share one are samples of it, and not independent; '' = it stands alone.
    """

    name: str
    column: str
    data: Mapping[str, Any]
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a policy made of an item.

    Attributes:
      score: in [0, 1]; it is won from ``WON`` on, anything less is partial credit.
      verdict: why that is its score, in a word or two; '' if it is won.
      fault: why it was lost without being judged (context, deadline, an error of ours); '' if it
        was judged.
      record: all that was said and done, as JSON can hold it.
    """

    item: str
    column: str
    score: float
    verdict: str
    fault: str
    record: Mapping[str, Any]


class Talk(typing.Protocol):
    """A dialogue in which the policy speaks when asked."""

    async def reply(self) -> str:
        """The policy's next message.

        Raises:
          Unanswered: there is none.
          Broken: there will be none in any dialogue.
        """
        ...

    def tell(self, messages: Sequence[Message]) -> None:
        """What comes after a reply: user or tool messages."""
        ...


class Policy(typing.Protocol):
    """Whatever can hold a dialogue: a model behind a sampler, a script, an oracle."""

    def talk(
        self,
        name: str,
        params: SamplingParams,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> contextlib.AbstractAsyncContextManager[Talk]:
        """A dialogue that begins with ``messages``.

        Args:
          name: what its randomness depends on, beside the policy's own seed.
          params: of every reply; ``stop_ids`` are the policy's own.
          tools: descriptions of functions that it may call.
        """
        ...

    def protocol(self) -> dict[str, Any]:
        """All of the policy that a result depends on, weights excepted, as JSON can hold it."""
        ...


class Benchmark(typing.Protocol):
    """A benchmark; an asynchronous context manager that holds its workers.

    Attributes:
      name: under which it is asked for.
      title: what a table calls it.
      params: decoding of every reply.
    """

    name: str
    title: str
    params: SamplingParams

    def items(self) -> list[Item]:
        """All items, in the order of the data.

        Raises:
          Absent: the data is not here.
        """
        ...

    def protocol(self) -> dict[str, Any]:
        """Versions, checksums, rules and limits: whatever changes scores when it changes.

        Asked for after :meth:`items`. Where scores do not compare with published ones, ``label``
        is what they are called.
        """
        ...

    def floors(self) -> Figures:
        """What players that understand nothing get, from the data itself; after :meth:`items`."""
        ...

    async def __aenter__(self) -> "Benchmark": ...

    async def __aexit__(self, *_: object) -> None: ...

    async def attempt(self, item: Item, policy: Policy) -> Outcome:
        """Has the policy try one item.

        Raises:
          Broken: the policy can answer nobody any more.
        """
        ...
