"""Every family makes games that the validator accepts and that its player wins, given the hint."""

import asyncio
import collections
import dataclasses
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


def returns_by_arm(families, skills):
    """Mean return of each arm; ``skills`` has the skill of its players."""

    async def work(host):
        returns = collections.defaultdict(list)
        for number, family in enumerate(families):
            game = family.create(random.Random(number), "lambda")
            handle = await host.open(game.source)
            for seed in range(6):
                for arm, skill in skills.items():
                    hint = game.hint if arm == "hinted" else None
                    player = game.player(skill, random.Random(seed), hint)
                    returns[arm].append(await episode(host, handle, player, seed))
            await host.close(handle)
        return returns

    return {arm: statistics.mean(values) for arm, values in in_sandbox(work).items()}


@pytest.mark.parametrize(
    ("slack", "least", "most"),
    [(0, 0.25, 0.55), (1, 0.5, 0.8), (6, 0.8, 1.0)],
)
def test_the_hint_wins_and_slack_decides_what_plain_play_does(slack, least, most):
    families = [dataclasses.replace(family, slack=(slack,)) for family in FAMILIES]
    arms = returns_by_arm(families, {"hinted": 1.0, "plain": 1.0, "random": 0.0})
    assert arms["hinted"] == 1.0
    assert least < arms["plain"] < most
    assert arms["random"] < 0.1


def test_a_level_of_ones_own_is_taken():
    family = dataclasses.replace(FAMILIES[0], goals=(4,), slack=(3,))
    for seed in range(8):
        source = family.create(random.Random(seed), "lambda").source
        assert "self.goal = 4\n" in source
        assert "max_turns=7," in source


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


def test_the_first_guess_is_right_on_some_seeds_of_every_game():
    """No constant guess wins or loses a game always, so no drift of the agent polarises it."""

    async def work(host):
        firsts = {}
        for family in FAMILIES:
            handle = await host.open(family.create(random.Random(3), "lambda").source)
            said = set()
            for seed in range(12):
                await host.reset(handle, seed)
                (action, *_) = await host.solution(handle)
                said.add(action.startswith("not "))
            firsts[family.name] = said
            await host.close(handle)
        return firsts

    assert {name for name, said in in_sandbox(work).items() if said != {True, False}} == set()


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_a_program_is_short_and_its_snippet_in_memory_whole(family):
    for game in games(family, 12):
        assert len(game.source) < config.Memory().snippet
        assert len(game.hint.split()) <= 4
