"""Formulas against the published vectors (method reference, appendix D) and their properties."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax import config
from spade_jax.selfplay import advantages, rewards

PAPER = config.Rewards()
unit = st.floats(0, 1)
signed = st.floats(-1, 1)

# Appendix D.2: name, skill, win rate of each offset (8 binary plays each), hinted mean, and the
# published regret, win rate, anchor, raw reward and advantage at scale 32.
WINDOWS = [
    ("a", "M", (0.5, 0.5, 0.5, 0.5), 0.75, 0.25, 0.5, 1.0, 1.0, 14.9333),
    ("b", "M", (0.25, 0.5, 0.625, 0.75), 0.25, 0.0, 0.53125, 1.0, 0.6, 2.1333),
    ("c", "M", (1.0, 1.0, 1.0, 1.0), 1.0, 0.0, 1.0, 0.0, 0.0, -17.0667),
    ("d", "L", (0.0, 0.0, 0.0, 0.125), 0.5, 0.5, 0.03125, 0.0, 0.4, -3.7067),
    ("e", "L", (0.5, 0.625, 0.75, 0.75), 0.5625, 0.0625, 0.65625, 0.775, 0.631667, 3.7067),
]


@pytest.mark.parametrize(
    ("win_rate", "standard", "low"),
    [
        (0.0, 0, 0),
        (0.1, 0, 0.5),
        (0.15, 0, 0.75),
        (0.2, 0.2, 1),
        (0.25, 0.4, 1),
        (0.3, 0.6, 1),
        (0.4, 1, 1),
        (0.5, 1, 0.5),
        (0.6, 1, 0),
        (0.7, 0.6, 0),
        (0.8, 0.2, 0),
        (0.85, 0, 0),
    ],
)
def test_plateau_vectors(win_rate, standard, low):
    assert rewards.plateau(win_rate, 0.4, 0.6, 0.25) == pytest.approx(standard, abs=1e-12)
    assert rewards.plateau(win_rate, 0.2, 0.4, 0.2) == pytest.approx(low, abs=1e-12)


def test_designer_reward_vectors():
    raw = []
    for _, _, window, hinted, regret, win_rate, anchor, blend, _ in WINDOWS:
        mean = sum(window) / len(window)
        assert mean == win_rate
        assert rewards.regret({0: window[0]}, {0: hinted}) == pytest.approx(regret)
        assert rewards.plateau(mean, 0.4, 0.6, 0.25) == pytest.approx(anchor)
        raw.append(rewards.designer_reward(mean, hinted - window[0], PAPER))
        assert raw[-1] == pytest.approx(blend, abs=1e-6)
    scale = rewards.designer_scale(n_agent=192, n_designer=24, k=4, cap=50)
    centred = advantages.centre(raw, [row[1] for row in WINDOWS])
    for value, row in zip(centred, WINDOWS, strict=True):
        assert value * scale == pytest.approx(row[-1], abs=1e-4)


def test_designer_scale_vectors():
    assert rewards.designer_scale(192, 24, 4, 50) == 32
    assert rewards.designer_scale(192, 24, 8, 50) == 50
    assert rewards.designer_scale(200, 20, 4, 50) == 40
    assert rewards.designer_scale(200, 0, 4, 50) == 1


@pytest.mark.parametrize(
    ("paid", "terminated", "expected"),
    [
        ([0.2, 0.5, 0.3], True, 0.3),
        ([0.2, 0.5, 0.3], False, 0),
        ([0, 5], True, 1),
        ([-3], True, -1),
        ([], True, 0),
    ],
)
def test_episode_return_vectors(paid, terminated, expected):
    assert rewards.episode_return(paid, terminated) == expected


def test_agent_advantage_vector():
    values = advantages.standardise([1, 1, 0, 0, 0, 0, 0, 1])
    assert values == pytest.approx([1.2910, 1.2910, *[-0.7746] * 5, 1.2910], abs=1e-4)


def test_equal_returns_have_no_advantage_whatever_the_rounding():
    assert advantages.standardise([0.1] * 7) == [0.0] * 7
    assert advantages.standardise([]) == []


def test_regret_pairs_seeds_and_is_unknown_without_a_hint():
    plain = {1: 0.0, 2: 1.0, 3: 0.5}
    assert rewards.regret(plain, {}) is None
    assert rewards.regret(plain, {2: 1.0, 3: 1.0}) == pytest.approx(0.25)


def test_a_failed_hint_is_not_a_regret_of_zero():
    assert rewards.designer_reward(0.5, None, PAPER) == pytest.approx(1.0)
    assert rewards.designer_reward(0.5, 0.0, PAPER) == pytest.approx(0.6)


@given(unit, signed)
def test_designer_reward_is_bounded(win_rate, regret):
    assert 0 <= rewards.designer_reward(win_rate, regret, PAPER) <= 1 + 1e-12


@given(unit, signed, signed)
def test_designer_reward_never_falls_with_regret(win_rate, one, other):
    low, high = sorted((one, other))
    assert rewards.designer_reward(win_rate, low, PAPER) <= rewards.designer_reward(
        win_rate, high, PAPER
    )


@given(st.lists(signed, min_size=2, max_size=20), st.randoms(use_true_random=False))
def test_advantages_do_not_depend_on_order(returns, rng: random.Random):
    order = list(range(len(returns)))
    rng.shuffle(order)
    straight = advantages.standardise(returns)
    shuffled = advantages.standardise([returns[index] for index in order])
    assert shuffled == pytest.approx([straight[index] for index in order], abs=1e-6)


@given(st.lists(st.tuples(signed, st.sampled_from("MLS")), min_size=1, max_size=20))
def test_centred_rewards_add_up_to_nothing_in_each_skill(pairs):
    centred = advantages.centre([value for value, _ in pairs], [skill for _, skill in pairs])
    for skill in "MLS":
        members = [value for value, (_, s) in zip(centred, pairs, strict=True) if s == skill]
        assert sum(members) == pytest.approx(0, abs=1e-9)
