"""Measurements of play and of the batch, beside those of ``metrics.Row``; pure functions.

They have the names under which the published system logs the same quantity. There ``actor`` is the
agent and ``env`` or ``proposer`` the designer, and ``pct`` is a share of 100. docs/metrics.md lists
them with all others.
"""

import collections
import statistics
import typing
from collections.abc import Callable, Iterable, Sequence

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.selfplay import payment, rewards
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.ledger import Ledger
from spade_jax.selfplay.state import Environment, Invalid

EASY, HARD = 0.8, 0.2
"""Win rates above and below which an environment counts as easy and hard."""
Values = dict[str, float]
Item = typing.TypeVar("Item")


def of_play(episodes: Sequence[Episode]) -> Values:
    """Of one iteration's scored plain episodes; nothing where there are none."""
    scored = [episode for episode in episodes if episode.arm == "plain" and episode.scored]
    if not scored:
        return {}
    returns = [episode.episode_return for episode in scored]
    lengths = [sum(sum(sample.trained) for sample in episode.samples) for episode in scored]
    values = {
        "rollout/actor_win_rate": _share(scored, lambda episode: episode.episode_return > 0),
        "rollout/actor_reward_std": statistics.pstdev(returns),
        "rollout/actor_mean_response_len": statistics.fmean(lengths),
        "rollout/actor_response_len_max": float(max(lengths)),
        "rollout/actor_truncated_pct": 100
        * _share(scored, lambda episode: episode.status != "terminated"),
        "rollout/actor_turns_per_episode": statistics.fmean(len(e.turns) for e in scored),
    }
    calls = sum((episode.calls for episode in scored), collections.Counter[str]())
    values |= {f"calls/{outcome}": float(count) for outcome, count in sorted(calls.items())}
    groups = list(_returns_by(scored, lambda episode: episode.environment.sha).values())
    for skill, group in _returns_by(scored, lambda episode: slug(episode.environment)).items():
        values[f"actor/skill_{skill}/avg_reward"] = statistics.fmean(group)
        values[f"actor/skill_{skill}/std_reward"] = statistics.pstdev(group)
    return values | _of_groups(groups)


def _of_groups(groups: Sequence[list[float]]) -> Values:
    """``groups``: the returns of each environment that was played."""
    rates = [statistics.fmean(group) for group in groups]
    percents = {
        "rollout/zero_std_group_pct": _share(groups, lambda group: len(set(group)) == 1),
        "rollout/all_zero_group_pct": _share(groups, lambda group: not any(group)),
        "rollout/all_positive_group_pct": _share(groups, lambda group: min(group) > 0),
        "env/game_difficulty/easy_pct": _share(rates, lambda rate: rate > EASY),
        "env/game_difficulty/medium_pct": _share(rates, lambda rate: HARD <= rate <= EASY),
        "env/game_difficulty/hard_pct": _share(rates, lambda rate: rate < HARD),
    }
    spread = statistics.fmean(statistics.pstdev(group) for group in groups)
    return {name: 100 * share for name, share in percents.items()} | {
        "env/avg_game_std_reward": spread
    }


def of_arms(episodes: Sequence[Episode]) -> Values:
    """Mean over environments of both arms' mean return, in all and by skill.

    Only environments that were scored in both arms count, so nothing in the later iterations of an
    epoch.
    """
    arms = {
        arm: _returns_by(
            [episode for episode in episodes if episode.arm == arm and episode.scored],
            lambda episode: episode.environment.sha,
        )
        for arm in ("plain", "hinted")
    }
    skills: dict[str, set[str]] = collections.defaultdict(set)
    for episode in episodes:
        sha = episode.environment.sha
        if all(sha in returns for returns in arms.values()):
            skills[slug(episode.environment)].add(sha)
    if not skills:
        return {}
    every = {sha for shas in skills.values() for sha in shas}
    values = {}
    for arm, name in (("plain", "r_no_hint"), ("hinted", "r_hint")):
        means = {sha: statistics.fmean(arms[arm][sha]) for sha in every}
        values[f"env/avg_{name}"] = statistics.fmean(means.values())
        for skill, shas in skills.items():
            values[f"env/skill_{skill}/{name}"] = statistics.fmean(means[sha] for sha in shas)
    return values


def of_paid(
    due: Sequence[Environment | Invalid],
    paid: Sequence[float | None],
    ledger: Ledger,
    settings: config.Rewards,
) -> Values:
    """Of the environments whose designers are trained now, over their whole windows."""
    played = [item for item in due if isinstance(item, Environment)]
    windows = payment.windows(played, ledger, settings)
    if not windows:
        return {}
    rates = [statistics.fmean(window.plays) for window in windows.values()]
    anchors = [
        rewards.plateau(rate, settings.anchor_low, settings.anchor_high, settings.anchor_ramp)
        for rate in rates
    ]
    values = {
        "delayed_env/blend_win_rate_mean": statistics.fmean(rates),
        "delayed_env/blend_plateau_mean": statistics.fmean(anchors),
    }
    regrets = [window.regret for window in windows.values() if window.regret is not None]
    if regrets:
        values["delayed_env/blend_regret_mean"] = statistics.fmean(regrets)
        values["delayed_env/blend_regret_std"] = statistics.pstdev(regrets)
        values["delayed_env/comp_regret_norm"] = statistics.fmean(
            min(max(regret / settings.regret_scale, 0.0), 1.0) for regret in regrets
        )
    by_skill: dict[str, list[float]] = collections.defaultdict(list)
    for item, reward in zip(due, paid, strict=True):
        if isinstance(item, Environment) and reward is not None:
            by_skill[slug(item)].append(reward)
    for skill, group in by_skill.items():
        values[f"delayed_env/skill_{skill}/mean_blend"] = statistics.fmean(group)
        values[f"delayed_env/skill_{skill}/num_games"] = float(len(group))
    return values


def of_batch(agent: Sequence[Trajectory], designer: Sequence[Trajectory]) -> Values:
    """Of the trajectories that are about to be learned from."""
    values: Values = {}
    if agent or designer:
        values["rollout/env_batch_fraction"] = len(designer) / (len(agent) + len(designer))
    for name, trajectories in (("actor", agent), ("env", designer)):
        logps = [
            logp
            for item in trajectories
            for logp, trained in zip(item.sampler_logp, item.trained, strict=True)
            if trained
        ]
        if logps:
            values[f"entropy/{name}_mean_neg_logprob"] = -statistics.fmean(logps)
    if designer:
        lengths = [sum(item.trained) for item in designer]
        values["rollout/env_mean_response_len"] = statistics.fmean(lengths)
        values["rollout/env_response_len_max"] = float(max(lengths))
    return values


def of_lag(
    iteration: int, due: Sequence[Environment | Invalid], episodes: Sequence[Episode]
) -> Values:
    """Versions by which the weights that sampled are older than those that learn, over the
    sampled tokens of what both roles learn from now."""
    played = [episode for episode in episodes if episode.arm == "plain" and episode.scored]
    samples = {
        "agent": [sample for episode in played for sample in episode.samples],
        "designer": [item.sample for item in due],
    }
    values: Values = {}
    for role, of_role in samples.items():
        lags = [iteration - version for s in of_role for version in s.versions if version >= 0]
        if lags:
            values[f"lag/{role}/mean"] = statistics.fmean(lags)
            values[f"lag/{role}/max"] = float(max(lags))
    return values


def slug(environment: Environment) -> str:
    """The skill as part of a metric's name."""
    return environment.skill.lower().replace(" ", "_")


def _returns_by(
    episodes: Iterable[Episode], key: Callable[[Episode], str]
) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = collections.defaultdict(list)
    for episode in episodes:
        groups[key(episode)].append(episode.episode_return)
    return groups


def _share(items: Sequence[Item], holds: Callable[[Item], bool]) -> float:
    return sum(map(holds, items)) / len(items)
