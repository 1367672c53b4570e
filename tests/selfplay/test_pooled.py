"""The fixed pool in the whole loop: sets without replacement, only the agent trained."""

import asyncio
import collections
import dataclasses
import itertools
import json

import pytest

from spade_jax import config
from spade_jax.environments import pools
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import metrics
from spade_jax.selfplay.pooled import Pooled
from spade_jax.selfplay.records import Unrecorded
from spade_jax.selfplay.state import State

POOL = pools.read(pools.LAPTOP)


@pytest.fixture
def pooled(settings):
    """Settings of the fixed pool, a set of six environments an iteration."""
    return dataclasses.replace(
        settings,
        schedule=dataclasses.replace(settings.schedule, k=1, delay=1, plain_plays=2, slots=6),
        pool=config.Pool("laptop"),
    )


def draw(settings, sets, pool=POOL, state=None, iteration=0):
    """SHAs and skills of ``sets`` sets."""
    supply, state = Pooled(settings, pool, Unrecorded()), state or State.fresh(settings.memory)
    shas, skills = [], []
    for state.iteration in range(iteration, iteration + sets):
        asyncio.run(supply.fill(state, metrics.Row(state.iteration)))
        shas.append([item.sha for item in state.environments])
        skills.append(collections.Counter(item.skill for item in state.environments))
    return shas, skills, state


def test_a_pass_holds_every_environment_once(pooled):
    shas, _, state = draw(pooled, len(POOL.programs) // 6)
    assert sorted(itertools.chain(*shas)) == sorted(program.sha for program in POOL.programs)
    assert [item.slot for item in state.environments] == list(range(6))


@pytest.mark.parametrize("slots", [6, 8])
def test_balanced_sets_have_each_skill_equally_often(pooled, slots):
    pooled = dataclasses.replace(
        pooled,
        schedule=dataclasses.replace(pooled.schedule, slots=slots),
        pool=config.Pool("laptop", balanced=True),
    )
    shas, skills, _ = draw(pooled, 36)
    for counts in skills:
        assert set(counts) == set(config.GAME_SKILLS)
        assert max(counts.values()) - min(counts.values()) <= slots % 6
    assert len(set(sum(skills, collections.Counter()).values())) == 1
    assert len(set(itertools.chain(*shas[: 96 // slots]))) == 96


def test_the_order_is_in_the_checkpoint(pooled):
    whole, _, _ = draw(pooled, 20)
    first, _, state = draw(pooled, 7)
    state = State.from_json(json.loads(json.dumps(state.to_json())), pooled.memory)
    rest, _, _ = draw(pooled, 13, state=state, iteration=7)
    assert first + rest == whole
    shrunk = pools.Pool(POOL.programs[1:], ())
    with pytest.raises(config.ConfigError, match="other environments than when this run was begun"):
        draw(pooled, 1, pool=shrunk, state=state)


def test_a_small_pool_is_refused(pooled):
    small = pools.Pool(POOL.programs[:5], ())
    with pytest.raises(config.ConfigError, match=r"too few .*slots = 6, .*all 5; lower the slots"):
        draw(pooled, 1, pool=small)


def test_only_the_agent_is_trained(make_cycle, pooled, scripted_policy, tmp_path):
    async def go():
        async with EnvironmentHost(pooled.sandbox) as host:
            supply = Pooled(pooled, POOL, Unrecorded())
            cycle = make_cycle(host, pooled, supply=supply, corpus=None)
            return cycle, [await cycle.run_iteration() for _ in range(2)]

    cycle, rows = asyncio.run(go())
    for row in rows:
        assert row["environments/accepted"] == 6
        assert row["agent/trained"] == row["episodes/plain"] == 12
        assert row["designer/trained"] == 0
        assert row["pool/passes"] == 1
        assert "designer/attempts" not in row
        assert row["episodes/hinted"] == 0
    assert not any("/slot/" in request.uid for request in cycle._agent._sampler.requests)
    played = {json.loads(path.read_text())["sha"] for path in tmp_path.glob("episodes/*/*.json")}
    assert len(played) == 12
    present = {item.sha for item in cycle.state.environments}
    assert {play["environment"] for play in cycle.state.ledger.to_json()} == present
