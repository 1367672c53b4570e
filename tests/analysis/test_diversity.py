"""Vendi score, repetition and the kernel on sets whose answer is known."""

import math
import random

import numpy as np
import pytest

from spade_jax.analysis import diversity
from spade_jax.environments import similarity


def block(sizes, within=1.0):
    """Groups whose members are ``within`` alike and share nothing with other groups."""
    kernel = np.zeros((sum(sizes), sum(sizes)))
    start = 0
    for size in sizes:
        kernel[start : start + size, start : start + size] = within
        start += size
    np.fill_diagonal(kernel, 1.0)
    return kernel


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1], 1), ([7], 1), ([1] * 9, 9), ([3, 3], 2), ([4, 4, 4], 3),
     ([6, 2], math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))],
)  # fmt: skip
def test_vendi_counts_different_groups(sizes, expected):
    assert diversity.vendi(block(sizes)) == pytest.approx(expected)


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.9])
def test_vendi_of_two_has_a_closed_form(alike):
    shares = [(1 + alike) / 2, (1 - alike) / 2]
    expected = math.exp(-sum(share * math.log(share) for share in shares))
    assert diversity.vendi(block([2], alike)) == pytest.approx(expected)


def program(seed, words=400):
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(words))


def test_the_kernel_tells_copies_from_strangers():
    sources = [program(0), program(0) + "  # a comment", program(1), ""]
    kernel = diversity.kernel(sources)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(np.diagonal(kernel), 1.0)
    assert kernel[0, 1] == pytest.approx(1.0)
    assert kernel[0, 2] < 0.01
    assert kernel[0, 3] == 0.0


def test_cosines_are_those_of_the_sets():
    sources = [program(0, 60), program(0, 60) + " " + program(1, 30), program(1, 30)]
    sets = [similarity.trigrams(source) for source in sources]
    expected = [[len(a & b) / math.sqrt(len(a) * len(b)) for b in sets] for a in sets]
    # Few trigrams, so that none of these share a bucket.
    np.testing.assert_allclose(diversity.trigram_cosines(sources), expected, rtol=1e-12)
    np.testing.assert_allclose(diversity.kernel(sources), np.square(expected), rtol=1e-12)


def test_chance_collisions_are_as_rare_as_stated():
    cosines = diversity.trigram_cosines([program(seed, words=202) for seed in range(60)])
    strangers = cosines[~np.eye(60, dtype=bool)]
    assert strangers.mean() == pytest.approx(200 / diversity.BUCKETS, rel=0.15)


def test_the_score_is_calibrated():
    """Strangers give 1, copies 1/n, families of near-copies about families/n."""
    strangers = [program(seed) for seed in range(30)]
    families = [
        strangers[family] + " " + program(1000 * family + member, words=10)
        for family in range(6)
        for member in range(5)
    ]
    score = [diversity.vendi(diversity.kernel(each)) / 30 for each in (strangers, families)]
    assert score[0] == pytest.approx(1, abs=0.01)
    assert score[1] == pytest.approx(6 / 30, rel=0.3)
    assert diversity.vendi(diversity.kernel(strangers[:1] * 30)) == pytest.approx(1)


def test_an_embedding_can_take_the_place_of_trigrams():
    angles = np.array([0.0, 0.1, np.pi / 2])
    kernel = diversity.kernel(["a", "b", "c"], lambda _: 7 * np.c_[np.cos(angles), np.sin(angles)])
    chords = 2 * np.sin(np.abs(angles[:, None] - angles) / 2)
    np.testing.assert_allclose(kernel, np.exp(-(chords**2) / (2 * diversity.SCALE**2)), atol=1e-12)


def test_scores_of_equal_n_can_be_compared():
    kernel = block([1] * 40)
    score = diversity.vendi_over_n(kernel, 10)
    assert (score.mean, score.low, score.high) == pytest.approx((1, 1, 1))
    half = diversity.vendi_over_n(block([20, 20]), 10, seed=3)
    assert half.low <= half.mean <= half.high
    # Ten of two kinds: hypergeometric numbers of the first, each with its entropy.
    chances = [math.comb(20, k) * math.comb(20, 10 - k) / math.comb(40, 10) for k in range(11)]
    expected = sum(
        chance * diversity.vendi(block([size for size in (k, 10 - k) if size])) / 10
        for k, chance in enumerate(chances)
    )
    assert half.mean == pytest.approx(expected, abs=0.01)
    with pytest.raises(ValueError, match="there are 40"):
        diversity.vendi_over_n(kernel, 41)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("", 0), ("a", 1), ("ab", 1), ("aa", 2), ("abab", 1), ("aabbb", 3), ("aaaab", 4)],
)
def test_repetitions_are_counted_in_a_row(order, expected):
    kernel = diversity.kernel([program(letter) for letter in order])
    assert diversity.longest_repetition(kernel, 0.9) == expected
