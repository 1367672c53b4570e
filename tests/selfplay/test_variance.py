"""The seed's share of the variance, against a two-way analysis of variance and simulations."""

import numpy as np
import pytest

from spade_jax.selfplay.variance import seed_share


def arms(table):
    """Columns of a [seed, arm] table as the returns of the arms."""
    return [{seed: [value] for seed, value in enumerate(column)} for column in table.T]


def test_paired_arms_are_the_consistency_form_of_the_intraclass_correlation():
    """Shrout and Fleiss' ICC(3,1): two-way, arms fixed."""
    table = np.random.default_rng(0).normal(size=(12, 3)) + np.arange(12)[:, None] / 4
    rows, columns = table.shape
    centred = table - table.mean()
    seeds = columns * (centred.mean(1) ** 2).sum() / (rows - 1)
    rest = centred - centred.mean(1, keepdims=True) - centred.mean(0, keepdims=True)
    error = (rest**2).sum() / ((rows - 1) * (columns - 1))
    expected = (seeds - error) / (seeds + (columns - 1) * error)
    assert seed_share([arms(table)]) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_simulated_shares_are_found(share):
    """Many environments of unequal means, two arms that differ by a constant, 16 seeds."""
    rng = np.random.default_rng(2)
    environments = []
    for _ in range(400):
        seeds = rng.normal(0, np.sqrt(share), (16, 1))
        table = rng.normal() + seeds + rng.normal(0, np.sqrt(1 - share), (16, 2)) + [0, 0.5]
        environments.append(arms(table))
    assert seed_share(environments) == pytest.approx(share, abs=0.03)


def test_one_arm_of_few_instances_played_often():
    rng = np.random.default_rng(3)
    environments = [
        [{seed: list(rng.normal(level, 1, 4)) for seed, level in enumerate(rng.normal(0, 1, 4))}]
        for _ in range(500)
    ]
    assert seed_share(environments) == pytest.approx(0.5, abs=0.05)


def test_extremes_and_what_cannot_be_told():
    assert seed_share([[{1: [0.0, 0.0], 2: [1.0, 1.0]}]]) == pytest.approx(1.0)
    assert seed_share([[{1: [0.0], 2: [1.0]}]]) is None
    assert seed_share([[{1: [0.5, 0.5], 2: [0.5, 0.5]}]]) is None
    assert seed_share([[{1: [0.0, 1.0]}]]) is None
    assert seed_share([[], []]) is None
