"""Which values of a :class:`spade_jax.config.Config` are possible, alone and together."""

import difflib
import math
import re
from typing import Any

from spade_jax.config_tree import ConfigError

GAME_SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)
TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)
SKILLS = {"games": GAME_SKILLS, "tools": TOOL_SKILLS}
DTYPES = ("float32", "bfloat16")
CHOICES = {
    "setting": tuple(SKILLS),
    "model.attention": ("xla", "splash"),
    "model.experts": ("ragged_dot", "gmm", "blocks"),
    "model.parameter_dtype": DTYPES,
    "model.compute_dtype": DTYPES,
    "schedule.skills": GAME_SKILLS + TOOL_SKILLS,
    "schedule.overlap": ("none", "next_iteration"),
    "designer.difficulty": ("easy", "medium", "hard"),
    "designer.prompts": ("full", "small"),
    "hints.author": ("policy", "environment", "endpoint"),
    "rewards.kind": (
        "blend",
        "solve_rate",
        "regret",
        "learning_potential",
        "late_gain",
        "trend_gain",
    ),
    "validation.preset": ("full", "published"),
    "sampler.kind": ("native", "sglang"),
    "sampler.updates": ("finish", "continue"),
    "learner.moments_dtype": DTYPES,
    "learner.role_weighting": ("paper", "balanced"),
    "trackers.wandb_mode": ("offline", "online"),
}
"""Words that a setting, or each part of one that is a tuple, may be."""
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
    "review.max_tokens",
    "sampler.slots",
    "sampler.context",
    "sampler.cache_mb",
    "sampler.prefill_chunk",
    "sampler.decode_steps",
    "sampler.in_flight",
    "mesh.data",
    "mesh.fsdp",
    "mesh.expert",
    "mesh.context",
    "mesh.tensor",
    "learner.rows",
    "learner.steps",
    "learner.row_length",
    "agent.max_episode_tokens",
    "tasks.attempts",
    "tasks.width",
    "validation.seeds",
    "validation.random_episodes",
    "sandbox.memory_mb",
    "sandbox.cpu_seconds",
    "sandbox.message_bytes",
    "sandbox.instances",
    "sandbox.output_bytes",
    "warm_start.steps",
    "warm_start.batch_tokens",
    "checkpoint.every",
    "checkpoint.keep",
)
NOT_NEGATIVE = (
    "sampler.hosts_per_replica",
    "evaluation.every",
    "evaluation.limit",
    "checkpoint.keep_every",
    "schedule.hinted_plays",
    "schedule.instances",
    "hints.placebo",
    "memory.capacity",
    "tasks.cap",
    "tasks.success",
    "sandbox.folder_mb",
    "memory.exemplars",
    "memory.avoid",
    "designer.top_k",
    "agent.top_k",
    "hints.top_k",
    "hints.temperature",
    "review.top_k",
    "review.temperature",
    "learner.learning_rate",
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
    "review.top_p",
    "sampler.timeout",
    "sampler.update_timeout",
    "sampler.patience",
    "sandbox.open_timeout",
    "sandbox.step_timeout",
    "sandbox.patience",
    "learner.clip_norm",
    "learner.importance_cap",
    "warm_start.learning_rate",
    "processes.deadline",
)


def check(config: Any) -> None:
    """Raises ConfigError for a value out of its range or settings that cannot work together."""
    _check_values(config)
    _check_sampler(config.sampler)
    _check_fleet(config.sandbox.fleet)
    _check_hints(config)
    _check_review(config)
    _check_schedule(config)
    _check_lengths(config)
    _check_tasks(config)
    _check_evaluation(config)


def _require(condition: bool, name: str, reason: str) -> None:
    if not condition:
        raise ConfigError(f"config.{name}: {reason}")


def _check_values(config: Any) -> None:
    def value_of(name: str) -> Any:
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        return value

    for name, allowed in CHOICES.items():
        chosen = value_of(name)
        for word in chosen if isinstance(chosen, tuple) else (chosen,):
            near = difflib.get_close_matches(word, allowed, n=1, cutoff=0.0)[0]
            reason = f"{word!r} is not one of {', '.join(allowed)}; did you mean {near}?"
            _require(word in allowed, name, reason)
    for name in POSITIVE:
        _require(value_of(name) >= 1, name, f"must be at least 1, got {value_of(name)}")
    for name in NOT_NEGATIVE:
        value = value_of(name)
        _require(0 <= value < math.inf, name, f"must be finite and not negative, got {value}")
    for name in ABOVE_ZERO:
        value = value_of(name)
        _require(0 < value < math.inf, name, f"must be above 0 and finite, got {value}")


def _check_sampler(sampler: Any) -> None:
    urls = [*filter(None, sampler.urls.split(",")), *filter(None, [sampler.router])]
    for url in urls:
        name = "sampler.router" if url == sampler.router else "sampler.urls"
        good = re.fullmatch(r"https?://[^/\s,?#]+(/[^\s,?#]*)?", url.strip())
        _require(bool(good), name, f"{url!r} is no base URL such as http://HOST:30000")
    _require(
        sampler.hosts_per_replica < 2 or sampler.kind == "sglang" or not sampler.deterministic,
        "sampler.hosts_per_replica",
        f"{sampler.hosts_per_replica}: when the requests of several hosts come is up to the clock; "
        "set sampler.deterministic = False",
    )
    _require(
        sampler.kind == "native" or not sampler.replay_experts,
        "sampler.replay_experts",
        "servers do not say which experts they chose: it needs sampler.kind = 'native'",
    )
    if sampler.kind == "sglang":
        _require(bool(sampler.urls), "sampler.urls", "must be set for sampler.kind = 'sglang'")


def _check_fleet(fleet: str) -> None:
    good = fleet in ("", "auto") or re.fullmatch(r"(ray://)?[^\s/:]+:\d{1,5}", fleet)
    reason = f"{fleet!r} is neither 'auto' nor HOST:PORT nor ray://HOST:PORT"
    _require(bool(good), "sandbox.fleet", reason)


def _check_hints(config: Any) -> None:
    hints = config.hints
    if hints.author == "environment":
        _require(
            config.designer.prompts == "full",
            "hints.author",
            "'environment' needs designer.prompts = 'full': only they ask programs for a hint",
        )
    if hints.author == "endpoint":
        for name, value in (
            ("hints.endpoint", hints.endpoint),
            ("hints.endpoint_model", hints.endpoint_model),
        ):
            _require(bool(value), name, "must be set for hints.author = 'endpoint'")


def _check_review(config: Any) -> None:
    asked, context = config.review.max_tokens, config.sampler.context
    able = config.setting == "tools" and config.designer.prompts == "full"
    _require(
        not config.review.enabled or able,
        "review.enabled",
        "needs setting = 'tools' and designer.prompts = 'full': only they have a text for it",
    )
    _require(
        not config.review.enabled or asked < context,
        "review.max_tokens",
        f"{asked} leaves no room for a source in sampler.context = {context}",
    )


def _check_schedule(config: Any) -> None:
    schedule, rewards = config.schedule, config.rewards
    _require(len(schedule.skills) > 0, "schedule.skills", "must name at least one skill")
    other = [skill for skill in schedule.skills if skill not in SKILLS[config.setting]]
    _require(
        not other,
        "schedule.skills",
        f"{', '.join(other)} is no skill of the setting '{config.setting}'; there are "
        f"{', '.join(SKILLS[config.setting])}",
    )
    active = schedule.active_skills or len(schedule.skills)
    _require(
        0 < active <= len(schedule.skills),
        "schedule.active_skills",
        f"{active} of {len(schedule.skills)} skills cannot be active",
    )
    _require(
        schedule.delay >= schedule.k,
        "schedule.delay",
        f"{schedule.delay} is less than schedule.k = {schedule.k}: the designer would be trained "
        "before its environments have been played; set it to schedule.k or more",
    )
    _require(
        schedule.overlap == "none" or config.sampler.kind != "native",
        "schedule.overlap",
        f"{schedule.overlap!r} needs servers elsewhere (sampler.kind = 'sglang'): the native "
        "sampler works on the learner's devices",
    )
    _require(
        0 < rewards.slow_rate < rewards.fast_rate <= 1,
        "rewards.slow_rate",
        f"{rewards.slow_rate} must be above 0 and below rewards.fast_rate = {rewards.fast_rate} "
        "<= 1",
    )
    for name, role in (("designer", config.designer), ("agent", config.agent)):
        _require(role.temperature > 0, f"{name}.temperature", "must be above 0 to explore")


def _check_lengths(config: Any) -> None:
    context, row_length = config.sampler.context, config.learner.row_length
    _require(
        config.agent.max_episode_tokens <= context,
        "agent.max_episode_tokens",
        f"{config.agent.max_episode_tokens} exceeds sampler.context = {context}",
    )
    _require(
        context <= row_length,
        "learner.row_length",
        f"{row_length} is less than sampler.context = {context}: a sampled trajectory might not "
        "fit a row; raise it or lower the context",
    )
    for name, limit, what in (
        ("designer.max_tokens", config.designer.max_tokens, "prompt"),
        ("hints.max_tokens", config.hints.max_tokens, "source"),
    ):
        _require(
            limit < context,
            name,
            f"{limit} leaves no room for a {what} in sampler.context = {context}",
        )


def _check_tasks(config: Any) -> None:
    module = config.tasks.module
    _require(
        not (module and config.pool.source),
        "tasks.module",
        f"{module!r} and pool.source = {config.pool.source!r}: environments come from one of them",
    )
    _require(
        not module or config.setting == "games",
        "tasks.module",
        "tasks are answered in words: setting must be 'games'",
    )
    _require(config.tasks.success <= 1, "tasks.success", f"{config.tasks.success} is above 1")


def _check_evaluation(config: Any) -> None:
    every, overlap = config.evaluation.every, config.schedule.overlap
    _require(
        not every or bool(config.evaluation.benchmarks),
        "evaluation.benchmarks",
        f"must name some for evaluation.every = {every}",
    )
    _require(
        not every or overlap == "none",
        "evaluation.every",
        f"{every}: no evaluations during a run with schedule.overlap = {overlap!r}; score its "
        "checkpoints with spade_jax.evaluate --all-checkpoints",
    )
