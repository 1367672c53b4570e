"""Rotation (appendix D.14), epochs and seeds."""

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
        for seed in schedule.play_seeds(0, environment, iteration, 16)
    ]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**31 for seed in drawn)
    assert schedule.play_seeds(0, "a", 0, 16) == drawn[:16]
    assert schedule.play_seeds(1, "a", 0, 16) != drawn[:16]


def test_hinted_plays_share_the_plain_seeds():
    assert schedule.hinted_seeds([5, 6, 7], 7) == [5, 6, 7, 5, 6, 7, 5]


def test_derived_seed_keeps_its_parts_apart():
    assert schedule.derive_seed("ab", "c") != schedule.derive_seed("a", "bc")
