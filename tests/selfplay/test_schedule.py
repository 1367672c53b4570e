"""Rotation (appendix D.14), epochs and seeds."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from spade_jax import config
from spade_jax.selfplay import schedule

SKILLS = config.GAME_SKILLS


def test_rotation_vector():
    for iteration in range(12):
        expected = SKILLS[:3] if iteration // 4 % 2 == 0 else SKILLS[3:]
        assert schedule.active_skills(iteration, 4, SKILLS, 3) == list(expected)


def test_rotation_wraps_and_all_is_all():
    assert schedule.active_skills(4, 4, SKILLS, 4) == [*SKILLS[4:], *SKILLS[:2]]
    for active in (0, 6, 7):
        assert schedule.active_skills(8, 4, SKILLS, active) == list(SKILLS)


def test_epochs():
    assert [schedule.starts_epoch(t, 4) for t in range(6)] == [True, *[False] * 3, True, False]


def test_seeds_are_fresh_each_iteration_and_distinct():
    drawn = [
        seed
        for environment in ("a", "b")
        for iteration in range(20)
        for seed in schedule.play_seeds(0, environment, iteration, 16, 0)
    ]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**31 for seed in drawn)
    assert schedule.play_seeds(0, "a", 0, 16, 0) == drawn[:16]
    assert schedule.play_seeds(1, "a", 0, 16, 0) != drawn[:16]


@given(st.integers(1, 20), st.integers(0, 25))
def test_plays_are_spread_evenly_over_the_instances(plays, instances):
    seeds = schedule.play_seeds(0, "a", 3, plays, instances)
    distinct = min(instances or plays, plays)
    counts = collections.Counter(seeds).values()
    assert (len(seeds), len(counts)) == (plays, distinct)
    assert max(counts) - min(counts) <= 1
    # Fewer instances are the first ones of many.
    assert set(seeds) <= set(schedule.play_seeds(0, "a", 3, plays, 0))


@given(
    st.integers(0, 200),
    st.integers(1, 9),
    st.lists(st.sampled_from(SKILLS), min_size=1, max_size=6, unique=True),
    st.integers(0, 8),
)
def test_rotation_is_constant_in_an_epoch_and_fair_over_all(iteration, k, skills, active):
    now = schedule.active_skills(iteration, k, skills, active)
    assert now == schedule.active_skills(iteration - iteration % k, k, skills, active)
    assert len(set(now)) == len(now) == (active if 0 < active < len(skills) else len(skills))
    counted = collections.Counter(
        skill
        for epoch in range(len(skills))
        for skill in schedule.active_skills(epoch * k, k, skills, active)
    )
    assert len({counted[skill] for skill in skills}) == 1


def test_hinted_plays_share_the_plain_seeds():
    assert schedule.hinted_seeds([5, 6, 7], 7) == [5, 6, 7, 5, 6, 7, 5]


def test_derived_seed_keeps_its_parts_apart():
    assert schedule.derive_seed("ab", "c") != schedule.derive_seed("a", "bc")
