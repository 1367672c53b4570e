"""Measurements of a handful of episodes, against figures worked out by hand."""

import dataclasses

import pytest

from spade_jax import config
from spade_jax.learner.packing import Trajectory
from spade_jax.selfplay import diagnostics
from spade_jax.selfplay.agent import Episode, Turn
from spade_jax.selfplay.ledger import Ledger, Play
from spade_jax.selfplay.state import Environment, Invalid, Sample


def environment(sha, skill):
    return Environment(sha, sha, skill, 0, 0, "source", "", [], Sample([1], [False], [0.0]))


LOGIC = environment("a", "Logical Deduction")
HARD = environment("b", "Logical Deduction")
EASY = environment("c", "Optimization")


def episode(place, arm, value, tokens=2, status="terminated", turns=1):
    """One that ends with ``value``, after ``tokens`` trained tokens in ``turns`` messages."""
    rewards = [0.0] * (turns - 1) + [value]
    return Episode(
        place, 0, arm, seed=1, play=0, status=status,
        turns=[Turn("r", "a", "o", reward) for reward in rewards],
        samples=[Sample([9] * (tokens + 1), [False] + [True] * tokens, [0.0] * (tokens + 1))],
    )  # fmt: skip


PLAIN = [
    episode(LOGIC, "plain", 1.0, tokens=4, turns=3),
    episode(LOGIC, "plain", -0.5, status="terminated"),
    episode(HARD, "plain", 0.0),
    episode(HARD, "plain", 1.0, status="turn_limit", turns=2),  # not terminated: return 0
    episode(EASY, "plain", 1.0),
    episode(EASY, "plain", 1.0, tokens=8),
]
DROPPED = episode(EASY, "plain", 1.0, status="host_fault")


def test_play():
    found = diagnostics.of_play([*PLAIN, DROPPED, episode(HARD, "hinted", 1.0)])
    assert found["rollout/actor_win_rate"] == 3 / 6
    assert found["rollout/actor_reward_std"] == pytest.approx(0.60668, abs=1e-5)
    assert found["rollout/actor_mean_response_len"] == 20 / 6
    assert found["rollout/actor_response_len_max"] == 8
    assert found["rollout/actor_truncated_pct"] == pytest.approx(100 / 6)
    assert found["rollout/actor_turns_per_episode"] == 9 / 6
    assert found["rollout/zero_std_group_pct"] == pytest.approx(200 / 3)
    assert found["rollout/all_zero_group_pct"] == pytest.approx(100 / 3)
    assert found["rollout/all_positive_group_pct"] == pytest.approx(100 / 3)
    assert found["env/game_difficulty/easy_pct"] == pytest.approx(100 / 3)
    assert found["env/game_difficulty/medium_pct"] == pytest.approx(100 / 3)
    assert found["env/game_difficulty/hard_pct"] == pytest.approx(100 / 3)
    assert found["env/avg_game_std_reward"] == pytest.approx(0.75 / 3)
    assert found["actor/skill_logical_deduction/avg_reward"] == 0.5 / 4
    assert found["actor/skill_optimization/std_reward"] == 0


def test_arms_are_compared_where_both_were_scored():
    hinted = [
        episode(LOGIC, "hinted", 1.0),
        episode(HARD, "hinted", 0.5),
        episode(HARD, "hinted", 0.0),
        episode(EASY, "hinted", 1.0, status="environment_fault"),
    ]
    assert diagnostics.of_arms([*PLAIN, *hinted]) == {
        "env/avg_r_no_hint": (0.25 + 0.0) / 2,
        "env/avg_r_hint": (1.0 + 0.25) / 2,
        "env/skill_logical_deduction/r_no_hint": 0.125,
        "env/skill_logical_deduction/r_hint": 0.625,
    }
    assert diagnostics.of_arms(PLAIN) == {}


def test_nothing_played_or_trained_measures_nothing():
    assert diagnostics.of_play([]) == diagnostics.of_play([DROPPED]) == {}
    assert diagnostics.of_batch([], []) == {}


def test_batch():
    agent = [Trajectory([1, 2, 3], [False, True, True], [9.0, -1.0, -3.0], 1.0)]
    designer = [
        Trajectory([1, 2], [False, True], [9.0, -0.5], 1.0),
        Trajectory([1, 2, 3, 4], [False, True, True, True], [9.0, -0.5, -1.5, -2.5], 1.0),
    ]
    assert diagnostics.of_batch(agent, designer) == {
        "rollout/env_batch_fraction": pytest.approx(2 / 3),
        "entropy/actor_mean_neg_logprob": 2.0,
        "entropy/env_mean_neg_logprob": 5 / 4,
        "rollout/env_mean_response_len": 2.0,
        "rollout/env_response_len_max": 3.0,
    }


def test_paid():
    plays = {
        "a": {"plain": [1.0, 0.0, 0.0, 1.0], "hinted": [1.0, 0.5, 0.5, 0.5]},  # regret 1/8
        "b": {"plain": [0.0, 0.0, 0.0, 0.8], "hinted": [1.0, 0.0, 0.0, 1.0]},  # regret 0.3
        "c": {"plain": [1.0, 1.0]},
    }
    ledger = Ledger(
        Play(sha, 0, arm, seed, value)
        for sha, arms in plays.items()
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    )
    refused = Invalid("Optimization", 0, Sample([1], [True], [0.0]))
    due, paid = [LOGIC, HARD, EASY, refused], [0.9, 0.5, 0.0, 0.0]
    found = diagnostics.of_paid(due, paid, ledger, config.Rewards())
    assert found == {
        "delayed_env/blend_win_rate_mean": pytest.approx((0.5 + 0.2 + 1) / 3),
        "delayed_env/blend_plateau_mean": pytest.approx((1 + 0.2 + 0) / 3),
        "delayed_env/blend_regret_mean": pytest.approx((0.125 + 0.3) / 2),
        "delayed_env/blend_regret_std": pytest.approx((0.3 - 0.125) / 2),
        "delayed_env/comp_regret_norm": pytest.approx((0.125 / 0.15 + 1) / 2),
        "delayed_env/skill_logical_deduction/mean_blend": pytest.approx(0.7),
        "delayed_env/skill_logical_deduction/num_games": 2,
        "delayed_env/skill_optimization/mean_blend": 0,
        "delayed_env/skill_optimization/num_games": 1,
    }
    assert diagnostics.of_paid([refused], [0.0], ledger, config.Rewards()) == {}


def test_lag():
    """Of scored plain episodes and of every designer that is due, prompts left out."""
    sampled = Sample([1, 2, 3], [False, True, True], [0.0] * 3, [-1, 4, 5])
    dropped = Sample([1, 2], [False, True], [0.0] * 2, [-1, 0])
    played = dataclasses.replace(PLAIN[0], samples=[sampled])
    lost = dataclasses.replace(DROPPED, samples=[dropped])
    due = [Invalid("Optimization", 0, Sample([1, 2], [False, True], [0.0] * 2, [-1, 1]))]
    assert diagnostics.of_lag(5, due, [played, lost, PLAIN[1]]) == {
        "lag/agent/mean": 0.5,
        "lag/agent/max": 1.0,
        "lag/designer/mean": 4.0,
        "lag/designer/max": 4.0,
    }
