"""Vendi score, repetition and the kernel on sets whose answer is known."""

import math
import random

import numpy as np
import pytest

from spade_jax.analysis import diversity


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
    assert kernel[0, 2] < 0.15
    assert kernel[0, 3] == 0.0


def test_chance_collisions_are_as_rare_as_stated():
    kernel = diversity.kernel([program(seed, words=202) for seed in range(12)])
    strangers = kernel[~np.eye(12, dtype=bool)]
    assert strangers.mean() == pytest.approx(200 / diversity.BUCKETS, rel=0.1)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("", 0), ("a", 1), ("ab", 1), ("aa", 2), ("abab", 1), ("aabbb", 3), ("aaaab", 4)],
)
def test_repetitions_are_counted_in_a_row(order, expected):
    kernel = diversity.kernel([program(letter) for letter in order])
    assert diversity.longest_repetition(kernel, 0.9) == expected
