"""What episodes were spent on, against shares counted by hand."""

import pytest

from spade_jax.analysis import curriculum


def plays(iteration, sha, returns, arm="plain"):
    return [{"iteration": iteration, "sha": sha, "arm": arm, "return": value} for value in returns]


def test_shares_are_of_episodes():
    rows = [
        *plays(3, "even", [1, 0, 1, 0]),  # win rate 0.5: learnable
        *plays(3, "won", [1, 1]),
        *plays(3, "lost", [0, 0, 0, None]),  # the dropped one does not count
        *plays(3, "rare", [0, 0, 0, 0, 0, 1]),  # below 0.2, but not uniform
        *plays(3, "even", [1, 1, 1, 1], arm="hinted"),
        *plays(1, "edge", [1, 0, 0, 0, 0]),  # exactly 0.2
        *plays(1, "other", [1, 1, 1, 1, 0]),  # exactly 0.8
        *plays(2, "none", [None]),
    ]
    found = curriculum.spent(rows)
    assert list(found) == [1, 3]
    assert found[1] == curriculum.Spent(1.0, 0.0, 10)
    assert found[3] == curriculum.Spent(4 / 15, 5 / 15, 15)


def test_smoothing_is_a_trailing_mean():
    assert curriculum.smoothed([1, 3, 5, 1], 2) == pytest.approx([1, 2, 4, 3])
    assert curriculum.smoothed([1, 3, 5], 1) == [1, 3, 5]
    assert curriculum.smoothed([], 3) == []
