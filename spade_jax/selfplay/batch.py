"""From episodes and paid designers to what the learner sees."""

import collections
from collections.abc import Sequence

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.sampling import experts
from spade_jax.selfplay import advantages, rewards
from spade_jax.selfplay.agent import Episode
from spade_jax.selfplay.state import Environment, Invalid

# The learner calls them groups: it clips and measures by group and knows nothing of roles.
ROLES = ("agent", "designer")


def agent_trajectories(episodes: Sequence[Episode], settings: config.Config) -> list[Trajectory]:
    """Scored plain episodes, their returns standardised within each environment.

    With ``agent.mask_truncated`` only what the environment ended itself is trained; the returns of
    the others count in the standardisation.

    An episode of several samples (templates that rewrite history) counts once: each sample
    weighs in with its share of the episode's trained tokens.
    """
    groups: dict[str, list[Episode]] = collections.defaultdict(list)
    for episode in episodes:
        if episode.arm == "plain" and episode.scored:
            groups[episode.environment.sha].append(episode)
    trajectories = []
    for group in groups.values():
        returns = [episode.episode_return for episode in group]
        for episode, advantage in zip(group, advantages.standardise(returns), strict=True):
            if settings.agent.mask_truncated and episode.status != "terminated":
                continue
            total = sum(sum(sample.trained) for sample in episode.samples)
            for sample in episode.samples:
                if trained := sum(sample.trained):
                    trajectories.append(
                        Trajectory(
                            sample.tokens,
                            sample.trained,
                            sample.logp,
                            advantage=advantage,
                            weight=trained / total,
                            group=ROLES.index("agent"),
                            temperature=settings.agent.temperature,
                            expert_tlk=experts.decode(sample.experts),
                        )
                    )
    return trajectories


def designer_trajectories(
    due: Sequence[Environment | Invalid],
    paid: Sequence[float | None],
    episodes: Sequence[Episode],
    settings: config.Config,
) -> list[Trajectory]:
    """Trajectories that wrote what is due, rewards centred per skill and scaled.

    The scale is the published min(k n_agent / n_designer, cap) under role weighting 'paper'; with
    'balanced' each role's gradient is clipped on its own and the scale would only distort it.
    """
    scored = [(item, reward) for item, reward in zip(due, paid, strict=True) if reward is not None]
    centred = advantages.centre(
        [reward for _, reward in scored], [item.skill for item, _ in scored]
    )
    scale = 1.0
    if settings.learner.role_weighting == "paper":
        n_agent = sum(episode.arm == "plain" and episode.scored for episode in episodes)
        scale = rewards.designer_scale(
            n_agent, len(scored), settings.schedule.k, settings.rewards.scale_cap
        )
    return [
        Trajectory(
            item.sample.tokens,
            item.sample.trained,
            item.sample.logp,
            advantage=advantage * scale,
            weight=1.0,
            group=ROLES.index("designer"),
            temperature=settings.designer.temperature,
            expert_tlk=experts.decode(item.sample.experts),
        )
        for (item, _), advantage in zip(scored, centred, strict=True)
    ]
