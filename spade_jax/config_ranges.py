"""Ranges of the numeric settings, by name."""

import math
from typing import Any

from spade_jax.config_tree import ConfigError

POSITIVE = (
    "iterations",
    "schedule.k",
    "schedule.delay",
    "schedule.slots",
    "schedule.plain_plays",
    "designer.attempts",
    "designer.max_tokens",
    "agent.max_tokens",
    "agent.max_turns",
    "hints.max_tokens",
    "sampler.slots",
    "sampler.context",
    "sampler.cache_mb",
    "sampler.prefill_chunk",
    "sampler.decode_steps",
    "learner.rows",
    "learner.row_length",
    "agent.max_episode_tokens",
    "validation.seeds",
    "validation.random_episodes",
    "sandbox.memory_mb",
    "sandbox.cpu_seconds",
    "sandbox.message_bytes",
    "sandbox.instances",
    "warm_start.steps",
    "warm_start.batch_tokens",
    "checkpoint.every",
    "checkpoint.keep",
)
NOT_NEGATIVE = (
    "checkpoint.keep_every",
    "schedule.hinted_plays",
    "schedule.instances",
    "hints.placebo",
    "memory.capacity",
    "memory.exemplars",
    "memory.avoid",
    "designer.top_k",
    "agent.top_k",
    "hints.top_k",
    "hints.temperature",
    "learner.weight_decay",
    "learner.kl_coefficient",
    "learner.entropy_coefficient",
    "rewards.regret_weight",
    "rewards.anchor_weight",
    "rewards.variance_weight",
)
ABOVE_ZERO = (
    "rewards.regret_scale",
    "rewards.anchor_ramp",
    "rewards.scale_cap",
    "designer.deadline",
    "designer.top_p",
    "agent.top_p",
    "hints.top_p",
    "sandbox.open_timeout",
    "sandbox.step_timeout",
    "learner.learning_rate",
    "learner.clip_norm",
    "learner.importance_cap",
    "warm_start.learning_rate",
)


def require(config: Any) -> None:
    """Raises ConfigError if a setting of ``config`` (a ``config.Config``) is out of its range."""
    for name in POSITIVE:
        if not (value := _value(config, name)) >= 1:
            raise ConfigError(f"config.{name}: must be at least 1, got {value}")
    for name in NOT_NEGATIVE:
        if not (value := _value(config, name)) >= 0:
            raise ConfigError(f"config.{name}: must not be negative, got {value}")
    for name in ABOVE_ZERO:
        if not 0 < (value := _value(config, name)) < math.inf:
            raise ConfigError(f"config.{name}: must be above 0 and finite, got {value}")


def _value(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config
