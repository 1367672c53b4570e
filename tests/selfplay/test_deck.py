"""Every card once a pass, no card twice in a draw, whatever the sizes."""

import collections
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.selfplay.deck import Deck


@given(st.integers(1, 30), st.data(), st.integers(0, 2**31))
def test_passes_are_permutations_and_draws_have_no_repeats(cards, data, seed):
    deck, stream = Deck(), []
    for _ in range(8):
        count = data.draw(st.integers(0, cards))
        drawn = deck.draw(count, cards, seed)
        assert len(set(drawn)) == len(drawn) == count
        stream += drawn
    counts = collections.Counter(stream)
    whole, rest = divmod(len(stream), cards)
    assert set(counts) <= set(range(cards))
    assert all(whole <= counts[card] <= whole + (rest > 0) for card in range(cards))
    for start in range(0, whole * cards, cards):
        assert sorted(stream[start : start + cards]) == list(range(cards))


def test_a_deck_goes_on_where_it_was_saved():
    unbroken, broken = Deck(), Deck()
    whole = [unbroken.draw(4, 10, 3) for _ in range(9)]
    parts = []
    for _ in range(9):
        broken = Deck(**json.loads(json.dumps(dataclasses.asdict(broken))))
        parts.append(broken.draw(4, 10, 3))
    assert parts == whole
    assert broken.passes == 4
    assert whole != [Deck().draw(4, 10, 4) for _ in range(9)]


def test_too_few_cards():
    with pytest.raises(ValueError, match="3 different cards of 2"):
        Deck().draw(3, 2, 0)
