"""What the rest of the system knows of generation: tokens in, tokens and log-probs out."""

import contextlib
import dataclasses
import typing
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How one completion is drawn. ``temperature`` 0 is greedy; ``top_k`` 0 is off."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """One completion to draw.

    Attributes:
      tokens: prompt ids, at least one.
      uid: names the completion; its randomness depends on (run seed, uid, position) alone.
      session: requests that share it extend one another's tokens, so their prefix is reused.
    """

    tokens: Sequence[int]
    params: SamplingParams
    uid: str
    session: str | None = None


@dataclasses.dataclass(frozen=True)
class Completion:
    """What came back.

    Attributes:
      tokens: sampled ids, the stop token included.
      logp: one natural-log float32 probability per sampled id, at the request's temperature and
        before any truncation of the distribution (temperature 0: at temperature 1).
      finish_reason: 'stop', 'length' (max_tokens or context reached) or 'refused'.
      version: weight version that sampled its last token.
      refusal: why the request was not served, when finish_reason is 'refused'.
      versions: of each token, where weights may change under a request; else empty.
      experts: chosen for every token but the last, prompt included, where the sampler records them
        (:mod:`spade_jax.sampling.experts`); else ''.
    """

    tokens: list[int]
    logp: list[float]
    finish_reason: typing.Literal["stop", "length", "refused"]
    version: int
    refusal: str = ""
    versions: list[int] = dataclasses.field(default_factory=list)
    experts: str = ""

    @property
    def token_versions(self) -> list[int]:
        """Weight version that sampled each token."""
        return self.versions or [self.version] * len(self.tokens)


class Sampler(typing.Protocol):
    """Anything that can draw completions from the current policy."""

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Completions in the order of ``requests``. Bad ones are refused, never raised."""
        ...

    def party(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Entered around code that calls :meth:`generate` again and again, such as an episode.

        A deterministic sampler waits for every party to call or leave before it samples, so that
        what is sampled together does not depend on the clock.
        """
        ...

    def release(self, session: str) -> None:
        """Forgets a session's cached prefix; unknown sessions are ignored."""
        ...

    def update(self, params: typing.Any, version: int) -> None:
        """Takes new weights, at once or between two of its calls; drops every cached prefix."""
        ...
