"""What the designer earns for its environments, out of the ledger."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from spade_jax import config
from spade_jax.selfplay import rewards
from spade_jax.selfplay.ledger import Arm, Ledger
from spade_jax.selfplay.rewards import Averages, Window
from spade_jax.selfplay.state import Environment, Invalid, State


def pay(
    due: Sequence[Environment | Invalid], state: State, settings: config.Rewards
) -> list[float | None]:
    """The reward of each item; None for one that tells nothing: nobody could play it.

    An invalid program earns 0, an environment that misbehaved ``settings.fault``. The skills'
    averages in ``state`` first take in what the paid environments showed.
    """
    shown = windows([item for item in due if isinstance(item, Environment)], state.ledger, settings)
    state.averages |= _averages(due, shown, state.averages, settings)

    def reward(item: Environment | Invalid) -> float | None:
        if isinstance(item, Invalid):
            return 0.0
        if item.sha in state.faulty:
            return settings.fault
        if item.sha not in shown:
            return None
        return rewards.designer_reward(shown[item.sha], state.averages[item.skill], settings)

    return [reward(item) for item in due]


def windows(
    environments: Sequence[Environment], ledger: Ledger, settings: config.Rewards
) -> dict[str, Window]:
    """SHA → window of every environment with a plain return, regrets shrunken on request."""
    found = {
        item.sha: window for item in environments if (window := _window(item, ledger)) is not None
    }
    if settings.shrink:
        by_skill = collections.defaultdict(list)
        for item in environments:
            if item.sha in found and found[item.sha].regret is not None:
                by_skill[item.skill].append(item.sha)
        for members in by_skill.values():
            values = rewards.shrink(
                [found[sha].regret for sha in members], [found[sha].error for sha in members]
            )
            for sha, value in zip(members, values, strict=True):
                found[sha] = dataclasses.replace(found[sha], regret=value)
    return found


def _window(environment: Environment, ledger: Ledger) -> Window | None:
    by_iteration = collections.defaultdict(list)
    for play in ledger.plays(environment.sha):
        by_iteration[play.iteration].append(play.episode_return)
    if not by_iteration:
        return None
    hinted = ledger.returns(environment.sha, "hinted", environment.written)
    return Window(
        returns=[by_iteration[iteration] for iteration in sorted(by_iteration)],
        hinted=statistics.fmean(hinted) if hinted else None,
        regret=regret(environment, ledger),
        error=regret_error(environment, ledger),
    )


def regret(environment: Environment, ledger: Ledger, arm: Arm = "hinted") -> float | None:
    """Gain of ``arm`` over the plain arm on the same seeds, in the first iteration of play."""
    return rewards.regret(*_seed_means(environment, ledger, arm))


def regret_error(environment: Environment, ledger: Ledger, arm: Arm = "hinted") -> float | None:
    """Standard error of :func:`regret`, clustered by seed."""
    return rewards.regret_error(*_seed_means(environment, ledger, arm))


def _seed_means(
    environment: Environment, ledger: Ledger, arm: Arm
) -> tuple[dict[int, float], dict[int, float]]:
    first = environment.written
    return (
        ledger.seed_means(environment.sha, "plain", first),
        ledger.seed_means(environment.sha, arm, first),
    )


def _averages(
    due: Sequence[Environment | Invalid],
    shown: Mapping[str, Window],
    averages: Mapping[str, Averages],
    settings: config.Rewards,
) -> dict[str, Averages]:
    """The averages of the skills that were shown, updated with all plays of each skill's set."""
    plays = collections.defaultdict(list)
    for item in due:
        if isinstance(item, Environment) and item.sha in shown:
            plays[item.skill] += shown[item.sha].plays
    means = {skill: statistics.fmean(values) for skill, values in plays.items()}
    return {
        skill: averages.get(skill, Averages(mean, mean)).updated(
            mean, settings.fast_rate, settings.slow_rate
        )
        for skill, mean in means.items()
    }
