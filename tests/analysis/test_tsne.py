"""t-SNE: its formulas against the slow way, and pictures whose neighbours are known."""

import numpy as np
import pytest

from spade_jax.analysis import tsne


def families(count, members, within=0.9, between=0.05):
    label_n = np.repeat(np.arange(count), members)
    kernel = np.where(label_n[:, None] == label_n, within, between)
    np.fill_diagonal(kernel, 1.0)
    return kernel, label_n


@pytest.mark.parametrize("perplexity", [2.0, 5.0, 11.0])
def test_every_item_has_so_many_neighbours(perplexity):
    rng = np.random.default_rng(0)
    squared = rng.uniform(0.1, 2.0, 30)
    shares = tsne._neighbours(squared, np.log(perplexity))
    assert np.exp(-np.sum(shares * np.log(shares))) == pytest.approx(perplexity, rel=1e-4)
    # A Gaussian: log-shares are linear in the squared distance.
    slopes = np.diff(np.log(shares)) / np.diff(squared)
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-6)


def test_affinities_are_symmetric_and_sum_to_one():
    kernel, _ = families(3, 5)
    joint = tsne.affinities(2 - 2 * kernel, 4.0)
    np.testing.assert_allclose(joint, joint.T)
    assert joint.sum() == pytest.approx(1, abs=1e-6)


def test_the_gradient_is_that_of_the_divergence():
    rng = np.random.default_rng(1)
    kernel, _ = families(2, 4)
    target = tsne.affinities(2 - 2 * kernel, 2.0)
    target /= target.sum()
    place = rng.normal(size=(8, 2))

    def divergence(place):
        total, near = 0.0, {}
        for i in range(8):
            for j in range(8):
                if i != j:
                    near[i, j] = 1 / (1 + np.sum((place[i] - place[j]) ** 2))
        for pair, value in near.items():
            total += target[pair] * np.log(target[pair] * sum(near.values()) / value)
        return total

    slope = tsne.gradient(place, target)
    for index in np.ndindex(2, 2):
        step = np.zeros_like(place)
        step[index] = 1e-5
        expected = (divergence(place + step) - divergence(place - step)) / 2e-5
        assert slope[index] == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_families_stay_together():
    kernel, label_n = families(5, 8)
    place = tsne.layout(kernel)
    distance = np.linalg.norm(place[:, None] - place, axis=-1)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :7]
    assert (label_n[nearest] == label_n[:, None]).all()
    np.testing.assert_array_equal(place, tsne.layout(kernel))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_few_items_have_places_too(count):
    kernel, _ = families(count, 1)
    place = tsne.layout(kernel)
    assert place.shape == (count, 2)
    assert np.isfinite(place).all()
