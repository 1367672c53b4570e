"""Every family makes games that the validator accepts and that its player wins, given the hint."""

import asyncio
import collections
import itertools
import random
import statistics

import pytest

from spade_jax import config
from spade_jax.environments import validation
from spade_jax.environments.parsing import boxed
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.warm_start.families import FAMILIES

NAMES = [family.name for family in FAMILIES]


def games(family, count, seed=0, noun="lambda"):
    rng = random.Random(seed)
    return [family.create(rng, noun) for _ in range(count)]


def in_sandbox(work):
    async def run():
        async with EnvironmentHost(config.Sandbox()) as host:
            return await work(host)

    return asyncio.run(run())


async def episode(host, handle, player, seed):
    """Terminal reward of one episode."""
    observation = await host.reset(handle, seed)
    for _ in range(25):
        result = await host.step(handle, boxed(player.act(observation)))
        if result.terminated or result.truncated:
            return result.reward if result.terminated else 0.0
        observation = result.observation
    raise AssertionError("the episode does not end")


def test_there_are_enough_families_for_every_skill():
    assert len(set(NAMES)) == len(NAMES)
    counts = collections.Counter(family.skill for family in FAMILIES)
    assert set(counts) == set(config.GAME_SKILLS)
    assert min(counts.values()) >= 4


def test_the_validator_accepts_a_game_of_every_family():
    async def work(host):
        reports = {}
        for family in FAMILIES:
            (game,) = games(family, 1, seed=7)
            reports[family.name] = await validation.validate(
                host, game.source, config.Validation(), max_turns=10
            )
        return reports

    refused = {name: r.reason for name, r in in_sandbox(work).items() if not r.accepted}
    assert refused == {}


def test_the_hint_helps_and_random_play_loses():
    async def work(host):
        returns = collections.defaultdict(lambda: collections.defaultdict(list))
        for number, family in enumerate(FAMILIES):
            for game in games(family, 3, seed=number):
                handle = await host.open(game.source)
                for seed in range(4):
                    arms = (("hinted", 1.0, game.hint), ("plain", 1.0, None), ("random", 0.0, None))
                    for arm, skill, hint in arms:
                        player = game.player(skill, random.Random(seed), hint)
                        won = await episode(host, handle, player, seed)
                        returns[family.name][arm].append(won)
                await host.close(handle)
        return returns

    means = {
        name: {arm: statistics.mean(values) for arm, values in arms.items()}
        for name, arms in in_sandbox(work).items()
    }
    assert {name: m for name, m in means.items() if m["hinted"] < 0.5} == {}
    overall = {
        arm: statistics.mean(m[arm] for m in means.values())
        for arm in {"hinted", "plain", "random"}
    }
    assert overall["hinted"] > 0.9
    assert 0.6 < overall["plain"] < overall["hinted"]
    assert overall["random"] < 0.1


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_games_are_varied_and_repeatable(family):
    drawn = games(family, 12)
    assert [game.source for game in drawn] == [game.source for game in games(family, 12)]
    assert len({game.source for game in drawn}) == 12
    assert len({game.hint for game in drawn}) > 1
    alike = [similarity(a.source, b.source) for a, b in itertools.combinations(drawn, 2)]
    duplicates = sum(value >= config.Validation().similarity for value in alike)
    assert duplicates <= len(alike) // 7
    assert all("noun = 'lambda'" in game.source for game in drawn)


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_every_family_is_won_in_every_way(family):
    shown = {
        phrase
        for game in games(family, 40)
        for phrase in ("done, ", "in a row, ", "lives, ")
        if phrase in game.source
    }
    assert len(shown) == 3


def test_without_room_for_a_wrong_guess_half_of_the_plays_win():
    async def work(host):
        returns = []
        for number, family in enumerate(FAMILIES):
            for game in games(family, 4, seed=number):
                handle = await host.open(game.source)
                values = [
                    await episode(host, handle, game.player(1.0, random.Random(seed), None), seed)
                    for seed in range(8)
                ]
                await host.close(handle)
                returns += [values] if min(values) < max(values) or not max(values) else []
        return returns

    unsure = in_sandbox(work)
    assert len(unsure) > 20
    assert 0.4 < statistics.mean(statistics.mean(values) for values in unsure) < 0.6


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_a_program_is_short_and_its_snippet_in_memory_whole(family):
    for game in games(family, 12):
        assert len(game.source) < config.Memory().snippet
        assert len(game.hint.split()) <= 4
