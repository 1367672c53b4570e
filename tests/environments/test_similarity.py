"""Near-duplicates: the filtered search against comparing every pair."""

import random

import pytest

from spade_jax.environments.similarity import duplicates, similarity


def programs(rng, count):
    """Programs of which many are others, a little changed."""
    made = []
    for _ in range(count):
        if made and rng.random() < 0.6:
            words = rng.choice(made).split()
            for _ in range(rng.randint(0, 4)):
                words[rng.randrange(len(words))] = rng.choice("abcdefgh")
        else:
            words = rng.choices("abcdefgh", k=rng.randint(1, 60))
        made.append(" ".join(words))
    return [*made, "", "a b", ""]


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.9, 1.0])
def test_the_first_earlier_one_that_is_alike(threshold):
    sources = programs(random.Random(7), 120)
    expected = [
        next((j for j in range(i) if similarity(a, sources[j]) >= threshold), None)
        if len(a.split()) > 2
        else None
        for i, a in enumerate(sources)
    ]
    found = duplicates(sources, threshold)
    assert found == expected
    assert any(double is not None for double in found)
    assert found.count(None) > 20
