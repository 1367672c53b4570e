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
    averages in ``state`` first take in what the due environments showed.
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
    return _shrunken(environments, found) if settings.shrink else found


def _shrunken(
    environments: Sequence[Environment], found: Mapping[str, Window]
) -> dict[str, Window]:
    """The windows with each regret drawn towards the mean of its skill."""
    by_skill: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for item in environments:
        value = found[item.sha].regret if item.sha in found else None
        if value is not None:
            by_skill[item.skill][item.sha] = value
    drawn = dict(found)
    for members in by_skill.values():
        errors = [found[sha].error for sha in members]
        for sha, value in zip(members, rewards.shrink(list(members.values()), errors), strict=True):
            drawn[sha] = dataclasses.replace(found[sha], regret=value)
    return drawn


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
    plays: dict[str, list[float]] = collections.defaultdict(list)
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
