"""Formulas against the published vectors (method reference, appendix D) and their properties."""

import dataclasses
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax import config
from spade_jax.config_rules import CHOICES
from spade_jax.selfplay import advantages, rewards
from spade_jax.selfplay.rewards import Averages, Window

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


SKILLS = [row[1] for row in WINDOWS]
FRESH = Averages(0.0, 0.0)


def binary(mean):
    """8 returns of 0 or 1 with the mean."""
    return [1.0] * round(8 * mean) + [0.0] * round(8 * (1 - mean))


def window(row, flipped=False):
    """The row's 32 plays; ``flipped``: every return r becomes 1 - r."""
    means = [1 - mean if flipped else mean for mean in row[2]]
    return Window([binary(mean) for mean in means], hinted=row[3], regret=row[3] - means[0])


def paid(kind, averages=FRESH, **settings):
    """The rewards of the five environments."""
    chosen = config.Rewards(kind=kind, **settings)
    return [rewards.designer_reward(window(row), averages, chosen) for row in WINDOWS]


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
        raw.append(rewards.blend(mean, hinted - window[0], PAPER))
        assert raw[-1] == pytest.approx(blend, abs=1e-6)
    scale = rewards.designer_scale(n_agent=192, n_designer=24, k=4, cap=50)
    assert paid("blend") == pytest.approx(raw)
    centred = advantages.centre(raw, SKILLS)
    for value, row in zip(centred, WINDOWS, strict=True):
        assert value * scale == pytest.approx(row[-1], abs=1e-4)


def test_solve_rate_is_the_anchor_alone():
    assert paid("solve_rate") == pytest.approx([row[6] for row in WINDOWS])
    weights = {"regret_weight": 0.0, "anchor_weight": 1.0}
    assert paid("solve_rate") == pytest.approx(paid("blend", **weights))


def test_regret_variant_vectors():
    """Appendix D.3; c misbehaved and earns -0.5 (tests/selfplay/test_payment.py pays it so)."""
    raw = paid("regret")
    raw[2] = -0.5
    centred = [50 * value for value in advantages.centre(raw, SKILLS)]
    assert centred == pytest.approx([16.6667, 4.1667, -20.8333, 11.7188, -11.7188], abs=1e-4)


def test_learning_potential_vectors():
    """Appendix D.4: two updates, the second with every return flipped."""
    rates = (0.98, 0.85)
    expected = {
        False: ({"M": (0.677083, 0.677083, 0.0), "L": (0.34375, 0.34375, 0.0)},
                [-1.2222, -2.2222, 3.4444, 0, 0]),
        True: ({"M": (0.33, 0.37604, 0.17708), "L": (0.65, 0.60938, 0.15625)},
               [-2.3556, -3.3556, 5.7111, 1.5, -1.5]),
    }  # fmt: skip
    averages = {}
    for flipped, (trackers, advantage) in expected.items():
        shown = [window(row, flipped) for row in WINDOWS]
        for skill in "ML":
            plays = [r for w, s in zip(shown, SKILLS, strict=True) if s == skill for r in w.plays]
            mean = statistics.fmean(plays)
            averages[skill] = averages.get(skill, Averages(mean, mean)).updated(mean, *rates)
            found = (*dataclasses.astuple(averages[skill]), averages[skill].potential(*rates))
            assert found == pytest.approx(trackers[skill], abs=1e-5)
        settings = config.Rewards(kind="learning_potential")
        raw = [rewards.designer_reward(w, averages[s], settings)
               for w, s in zip(shown, SKILLS, strict=True)]  # fmt: skip
        centred = [32 * value for value in advantages.centre(raw, SKILLS)]
        assert centred == pytest.approx(advantage, abs=1e-4)


def test_late_gain_vectors():
    """Appendix D.5, two halves."""
    centred = advantages.centre(paid("late_gain"), SKILLS)
    assert centred == pytest.approx([-0.1042, 0.2083, -0.1042, -0.0625, 0.0625], abs=1e-4)


def test_trend_gain_vectors():
    """Appendix D.5, slope from start to end; a flat window is exactly 0."""
    assert paid("trend_gain") == pytest.approx([0, 0.4875, 0, 0.1125, 0.2625])
    assert paid("trend_gain")[0] == paid("trend_gain")[2] == 0.0


@given(st.lists(st.lists(signed, min_size=1, max_size=6), min_size=2, max_size=6))
def test_trend_is_numpys_weighted_line(returns):
    means = [statistics.fmean(plays) for plays in returns]
    # polyfit squares its weights, and an iteration weighs sqrt(n) in the sum of squares.
    weights = [len(plays) ** 0.25 for plays in returns]
    slope = np.polyfit(range(len(means)), means, 1, w=weights)[0]
    assert rewards.trend_gain(returns) == pytest.approx(
        max(0.0, slope * (len(means) - 1)), abs=1e-9
    )


def test_gains_of_one_iteration_are_unknown_and_so_zero():
    assert rewards.late_gain([[1.0, 0.0]]) == rewards.trend_gain([[1.0, 0.0]]) == 0.0


@pytest.mark.parametrize(
    ("returns", "bonus"),
    [([1, 0, 1, 0], 1.0), ([1, 1, 1, 1], 0.0439), ([1, 0, 0, 0, 0, 0, 0, 0], 0.3720)],
)
def test_variance_bonus_vectors(returns, bonus):
    """Appendix D.6; added to any kind by its weight."""
    assert rewards.variance_bonus(returns) == pytest.approx(bonus, abs=1e-4)
    settings = config.Rewards(kind="solve_rate", variance_weight=2.0)
    value = rewards.designer_reward(Window([returns]), FRESH, settings)
    anchor = rewards.plateau(statistics.fmean(returns), 0.4, 0.6, 0.25)
    assert value == pytest.approx(anchor + 2 * bonus, abs=1e-3)


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
    assert rewards.blend(0.5, None, PAPER) == pytest.approx(1.0)
    assert rewards.blend(0.5, 0.0, PAPER) == pytest.approx(0.6)
    unknown = Window([[1.0, 0.0]])
    assert rewards.designer_reward(unknown, FRESH, config.Rewards(kind="regret")) is None


def test_regret_error_is_clustered_by_seed():
    """Many plays of one seed are one observation: only their mean and the seeds' number count."""
    plain, hinted = {1: 0.0, 2: 1.0, 3: 0.5, 9: 1.0}, {1: 0.5, 2: 1.0, 3: 1.0}
    error = np.std([0.5, 0.0, 0.5], ddof=1) / np.sqrt(3)
    assert rewards.regret_error(plain, hinted) == pytest.approx(error)
    assert rewards.regret_error(plain, {1: 0.5}) is None


def test_pairing_by_seed_removes_the_spread_of_instances():
    """Simulated: the error is that of the difference of plays, whatever instances differ by."""
    rng = np.random.default_rng(0)
    values, errors = [], []
    for _ in range(2000):
        instance = rng.normal(0, 5, 16)
        plain = dict(enumerate(instance + rng.normal(0, 0.3, 16)))
        hinted = dict(enumerate(instance + 0.1 + rng.normal(0, 0.4, 16)))
        values.append(rewards.regret(plain, hinted))
        errors.append(rewards.regret_error(plain, hinted))
    assert np.mean(values) == pytest.approx(0.1, abs=0.01)
    assert np.std(values) == pytest.approx(0.5 / 4, rel=0.05)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(0.5 / 4, rel=0.05)


def test_shrinking_brings_regrets_nearer_to_the_truth():
    """Normal truths seen with known errors: the posterior mean, and a lower squared error."""
    rng = np.random.default_rng(1)
    truth = rng.normal(0.2, 0.1, 5000)
    errors = rng.uniform(0.05, 0.3, 5000)
    seen = truth + rng.normal(0, errors)
    drawn = np.array(rewards.shrink(list(seen), list(errors)))
    posterior = 0.2 + (seen - 0.2) * 0.01 / (0.01 + errors**2)
    assert np.abs(drawn - posterior).max() < 0.05
    assert np.mean((drawn - truth) ** 2) < 0.5 * np.mean((seen - truth) ** 2)


def test_shrinking_leaves_what_is_exact_or_unknown():
    assert rewards.shrink([0.5, -0.1], [None, 0.2]) == [0.5, -0.1]
    assert rewards.shrink([0.5, 0.1, 0.3], [0.0, 0.1, None])[::2] == [0.5, 0.3]
    assert rewards.shrink([], []) == []


pairs = st.lists(st.tuples(signed, st.floats(0.01, 1)), min_size=2, max_size=12)


@given(pairs)
def test_shrinking_never_passes_the_mean_nor_moves_away(found):
    values, errors = zip(*found, strict=True)
    mean = statistics.fmean(values)
    for value, drawn in zip(values, rewards.shrink(values, errors), strict=True):
        low, high = sorted((value, mean))
        assert low - 1e-9 <= drawn <= high + 1e-9


@given(unit, signed)
def test_blend_is_bounded(win_rate, regret):
    assert 0 <= rewards.blend(win_rate, regret, PAPER) <= 1 + 1e-12


@given(unit, signed, signed)
def test_blend_never_falls_with_regret(win_rate, one, other):
    low, high = sorted((one, other))
    assert rewards.blend(win_rate, low, PAPER) <= rewards.blend(win_rate, high, PAPER)


@given(unit, unit)
def test_anchor_falls_with_the_distance_from_its_band(one, other):
    def distance(win_rate):
        return max(0.4 - win_rate, win_rate - 0.6, 0.0)

    near, far = sorted((one, other), key=distance)
    assert 0 <= rewards.plateau(far, 0.4, 0.6, 0.25) <= rewards.plateau(near, 0.4, 0.6, 0.25) <= 1


plays = st.lists(st.lists(signed, min_size=1, max_size=8), min_size=1, max_size=5)


@given(plays, st.sampled_from(CHOICES["rewards.kind"]), st.randoms(use_true_random=False))
def test_rewards_are_bounded_and_do_not_depend_on_the_order_of_plays(returns, kind, rng):
    settings = config.Rewards(kind=kind)
    averages = Averages(0.1, -0.2)
    straight = rewards.designer_reward(Window(returns, 0.3, 0.2), averages, settings)
    shuffled = [rng.sample(values, len(values)) for values in returns]
    other = rewards.designer_reward(Window(shuffled, 0.3, 0.2), averages, settings)
    assert other == pytest.approx(straight, abs=1e-9)
    # A line through neighbouring means of -1 and 1 rises by 2 an iteration.
    assert 0 <= straight <= (2 * len(returns) if kind == "trend_gain" else 2)


@given(st.lists(signed, min_size=1, max_size=8), signed, st.booleans())
def test_returns_are_bounded_and_only_the_last_counts(paid, last, terminated):
    value = rewards.episode_return([*paid, 7 * last], terminated)
    assert value == rewards.episode_return([7 * last], terminated)
    assert abs(value) <= 1


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 50), st.floats(1, 100))
def test_designer_scale_grows_with_k_up_to_the_cap(n_agent, n_designer, k, cap):
    value = rewards.designer_scale(n_agent, n_designer, k, cap)
    assert 0 < value <= cap
    assert value <= rewards.designer_scale(n_agent, n_designer, k + 1, cap)


@given(st.lists(signed, min_size=2, max_size=20))
def test_advantages_have_mean_zero_and_keep_the_order_of_returns(returns):
    values = advantages.standardise(returns)
    assert math.fsum(values) == pytest.approx(0, abs=1e-5)
    ranked = [value for _, value in sorted(zip(returns, values, strict=True))]
    assert ranked == sorted(ranked)


@given(
    st.lists(st.tuples(signed, st.sampled_from("MLS")), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_centring_does_not_depend_on_order(pairs, rng):
    order = rng.sample(range(len(pairs)), len(pairs))
    straight = advantages.centre(*zip(*pairs, strict=True))
    shuffled = advantages.centre(*zip(*(pairs[index] for index in order), strict=True))
    assert shuffled == pytest.approx([straight[index] for index in order], abs=1e-12)


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
