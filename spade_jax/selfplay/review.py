"""The published model-based check of tool environments: the policy reads what the checks accepted.

A separate, untrained call. Only a clear yes accepts: the published one accepts what it could not
judge as well.
"""

import dataclasses
from collections.abc import Sequence

from spade_jax import config
from spade_jax.environments import parsing
from spade_jax.sampling.interface import Completion, Request, Sampler
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay import prompts
from spade_jax.selfplay.decoding import sampling_params

YES, NO = ("yes", "y", "true"), ("no", "n", "false")


@dataclasses.dataclass(frozen=True)
class Program:
    """An environment to be reviewed; ``uid`` names the request."""

    source: str
    skill: str
    uid: str


@dataclasses.dataclass(frozen=True)
class Review:
    """``outcome``: 'accepted', 'review' (refused by it) or 'unreviewed' (it gave no verdict)."""

    outcome: str
    reason: str


async def review(
    programs: Sequence[Program], sampler: Sampler, renderer: Renderer, settings: config.Config
) -> list[Review]:
    """A verdict on each, in their order; what the sampler raises is not caught."""
    params = sampling_params(settings.review, renderer)
    requests = [
        Request(renderer.prompt(messages(item.skill, item.source)), params, item.uid)
        for item in programs
    ]
    completions = await sampler.generate(requests) if requests else []
    return [_verdict(completion, renderer) for completion in completions]


def messages(skill: str, source: str) -> prompts.Messages:
    """Asks whether the environment can be carried out."""
    return [prompts.message("user", "tools_full/review", {"skill": skill, "source": source})]


def _verdict(completion: Completion, renderer: Renderer) -> Review:
    if completion.finish_reason == "refused":
        return Review("unreviewed", f"the review was not sampled: {completion.refusal}")
    if completion.finish_reason == "length":
        return Review("unreviewed", "the review ran out of review.max_tokens")
    text = parsing.without_thinking(renderer.decode(completion.tokens)).strip()
    word = (parsing.box_content(text) or "").strip(" .!").lower()
    if word in YES:
        return Review("accepted", "")
    return Review("review" if word in NO else "unreviewed", f"the reviewer wrote: {text}")
