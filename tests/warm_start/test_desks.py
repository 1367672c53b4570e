"""Desks that the validator accepts and that their player wins, given the hint."""

import asyncio
import collections
import itertools
import random
import statistics

import pytest

from spade_jax import config
from spade_jax.environments import validation
from spade_jax.environments.calls import Call, parse_calls
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.prompts import tools as prompts
from spade_jax.warm_start import desks

MAX_TURNS = 8
COMBINATIONS = list(itertools.product(desks.DEEDS, desks.THINGS))


def drawn(count, skill="Data Retrieval", domain="Banking", seed=0):
    rng = random.Random(seed)
    return [desks.create(rng, skill, domain, "lambda") for _ in range(count)]


def in_sandbox(work):
    async def run():
        async with EnvironmentHost(config.Sandbox()) as host:
            return await work(host)

    return asyncio.run(run())


async def episode(host, handle, player, seed):
    """Terminal reward of one episode."""
    observation = await host.reset(handle, seed)
    for _ in range(MAX_TURNS):
        reply = player.act(observation)
        if not (calls := parse_calls(reply)):
            result = await host.step(handle, reply)
            if result.terminated:
                return result.reward
            observation = result.observation
            continue
        (call,) = calls
        assert isinstance(call, Call)
        answer = await host.call(handle, call.name, call.arguments)
        observation = "\n".join([answer["output"], *answer["instructions"]])
    return 0.0


def test_skills_and_domains_are_those_of_the_setting():
    assert tuple(desks.DEEDS) == config.TOOL_SKILLS
    assert list(desks.THINGS) == list(prompts.DOMAINS)
    words = [word for deeds in desks.DEEDS.values() for pair in deeds for word in pair]
    assert len(set(words)) == len(words)


def refusals(games):
    async def work(host):
        reports = [
            validation.validate(
                host, game.source, config.Validation(), max_turns=MAX_TURNS, setting="tools"
            )
            for game in games
        ]
        return await asyncio.gather(*reports)

    return [report.reason for report in in_sandbox(work) if not report.accepted]


def test_the_validator_accepts_every_part(monkeypatch):
    """Every skill, domain and wording, and every size with every way of advancing."""
    games = []
    sizes = itertools.product(desks.STAGES, desks.SLACK, desks.ADVANCING)
    wordings = ("PURPOSES", "VERDICTS", "REQUESTS", "TELLING", "SPARE", "SOLVING")
    options = {name: getattr(desks, name) for name in wordings}
    for number, size in enumerate(sizes):
        chosen = dict(zip(("STAGES", "SLACK", "ADVANCING"), size, strict=True))
        chosen |= {name: all_of[number % len(all_of)] for name, all_of in options.items()}
        for name, value in chosen.items():
            monkeypatch.setattr(desks, name, (value,))
        skill, domain = list(desks.DEEDS)[number % 6], list(desks.THINGS)[number % 10]
        games.append(desks.create(random.Random(number), skill, domain, "lambda"))
    assert len(games) == 18
    assert refusals(games) == []


@pytest.mark.slow
def test_the_validator_accepts_every_combination():
    rng = random.Random(0)
    games = [
        desks.create(rng, skill, domain, "lambda")
        for skill, domain in COMBINATIONS
        for _ in range(6)
    ]
    assert refusals(games) == []


def returns_by_arm():
    """Mean return of each arm; of players who know the hint, who do not, and who act at random."""

    async def work(host):
        returns = collections.defaultdict(list)
        for number, (skill, domain) in enumerate(COMBINATIONS[::4]):
            game = desks.create(random.Random(number), skill, domain, "lambda")
            handle = await host.open(game.source)
            for seed in range(6):
                for arm, ability in (("hinted", 1.0), ("plain", 1.0), ("random", 0.0)):
                    hint = game.hint if arm == "hinted" else None
                    player = game.player(ability, random.Random(f"{number}/{seed}"), hint)
                    returns[arm].append(await episode(host, handle, player, seed))
            await host.close(handle)
        return returns

    return {arm: statistics.mean(values) for arm, values in in_sandbox(work).items()}


# Who heeds answers wins 1/2, 1, 1; who does not needs three or four heads before so many tails.
@pytest.mark.parametrize(
    ("slack", "expected"),
    [(0, (1 / 2 + 3 / 32) / 2), (1, (1 + 1 / 4) / 2), (2, (1 + 27 / 64) / 2)],
)
def test_the_hint_wins_and_slack_decides_what_plain_play_does(monkeypatch, slack, expected):
    monkeypatch.setattr(desks, "SLACK", (slack,))
    arms = returns_by_arm()
    assert arms["hinted"] == 1.0
    assert arms["plain"] == pytest.approx(expected, abs=0.12)
    assert arms["random"] < 0.12


def test_desks_are_varied_and_repeatable():
    games = drawn(24)
    assert [game.source for game in games] == [game.source for game in drawn(24)]
    assert len({game.source for game in games}) == 24
    assert {game.hint for game in games} == {desks.HINT.format(place) for place in desks.PLACES}
    alike = [similarity(a.source, b.source) for a, b in itertools.combinations(games, 2)]
    duplicates = sum(value >= config.Validation().similarity for value in alike)
    assert duplicates <= len(alike) // 50


def test_no_first_guess_wins_a_desk_always():
    async def work(host):
        said = collections.defaultdict(set)
        for skill in desks.DEEDS:
            (game,) = drawn(1, skill)
            handle = await host.open(game.source)
            for seed in range(12):
                await host.reset(handle, seed)
                (_, first), *_ = (await host.examine(handle))["solution"]
                said[skill].add(first["arguments"]["way"])
            await host.close(handle)
        return said

    assert in_sandbox(work) == {skill: set(ways) for skill, (_, ways) in desks.DEEDS.items()}


def test_a_program_is_short_and_its_snippet_in_memory_whole():
    for game in drawn(30):
        assert len(game.source) < config.Memory().snippet
        assert len(game.hint.split()) == 2
