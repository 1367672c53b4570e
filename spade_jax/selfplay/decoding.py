"""How each role's text is drawn."""

from spade_jax import config
from spade_jax.sampling.interface import SamplingParams
from spade_jax.sampling.rendering import Renderer


def sampling_params(
    settings: config.Designer | config.Agent | config.Hints | config.Review,
    renderer: Renderer,
    room: int | None = None,
) -> SamplingParams:
    """The role's settings. ``room`` lowers the limit of new tokens, thinking included."""
    return SamplingParams(
        max_tokens=settings.max_tokens if room is None else min(settings.max_tokens, room),
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        stop_ids=renderer.stop_ids,
    )
