"""The hint: a separate, untrained call of the same weights on an accepted source."""

import dataclasses
from collections.abc import Sequence

from spade_jax import config
from spade_jax.sampling.interface import Request, Sampler, SamplingParams
from spade_jax.sampling.rendering import Renderer
from spade_jax.selfplay import prompts
from spade_jax.selfplay.state import Environment


async def write_hints(
    environments: Sequence[Environment],
    sampler: Sampler,
    renderer: Renderer,
    settings: config.Hints,
    prompt_set: str,
    context: int,
) -> tuple[list[Environment], int]:
    """The environments with their hints, and the tokens sampled for them.

    An environment whose hint failed keeps ``hint=None``.

    Args:
      context: tokens the policy can hold; a source that leaves no room for a hint gets none.
    """
    requests = []
    for environment in environments:
        messages = prompts.hint(
            prompt_set, skill=environment.skill, source=environment.source, words=settings.words
        )
        params = SamplingParams(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            stop_ids=renderer.stop_ids,
        )
        uid = f"{environment.written}/{environment.sha[:16]}/hint"
        requests.append(Request(renderer.prompt(messages), params, uid))
    fitting = [len(request.tokens) + settings.max_tokens <= context for request in requests]
    written = await sampler.generate(
        [request for request, fits in zip(requests, fitting, strict=True) if fits]
    )
    completions = iter(written)
    hinted = []
    for environment, fits in zip(environments, fitting, strict=True):
        text = ""
        if fits and (completion := next(completions)).finish_reason == "stop":
            words = renderer.decode(completion.tokens).split(" ")
            text = " ".join(words[: settings.words]).strip()
        hinted.append(dataclasses.replace(environment, hint=text or None))
    return hinted, sum(len(completion.tokens) for completion in written)
