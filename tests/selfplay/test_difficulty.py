"""The window of a task's levels: published vectors and the rule's edges."""

from hypothesis import given
from hypothesis import strategies as st

from spade_jax import config
from spade_jax.selfplay.difficulty import Window

PUBLISHED = config.Tasks()


def ends(window):
    return window.low, window.high


def test_always_winning_at_the_top_moves_up_as_published():
    rule, window, seen = config.Tasks(attempts=8), Window(), []
    for _ in range(6):
        window.played(window.high, 8, 8, rule)
        seen.append(ends(window))
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (3, 6)]


def test_128_attempts_and_nine_tenths_are_needed():
    window = Window()
    window.played(0, 127, 127, PUBLISHED)
    assert ends(window) == (0, 0)
    window.played(0, 0, 1, PUBLISHED)  # 127 of 128
    assert (ends(window), window.attempts) == ((0, 1), 0)
    window.played(1, 115, 128, PUBLISHED)  # 0.898
    assert (ends(window), window.attempts, window.wins) == ((0, 1), 0, 0)
    window.played(1, 117, 130, PUBLISHED)  # 0.9
    assert ends(window) == (0, 2)


def test_plays_below_the_top_count_for_nothing():
    window = Window(0, 3, 5, 5)
    window.played(2, 1000, 1000, PUBLISHED)
    assert window == Window(0, 3, 5, 5)


def test_the_cap_holds():
    window = Window(17, 20)
    window.played(20, 128, 128, PUBLISHED)
    assert window == Window(17, 20)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=60), st.integers(1, 6))
def test_windows_stay_in_bounds_and_never_go_down(plays, width):
    rule, window = config.Tasks(width=width, cap=9), Window()
    for won, count in plays:
        before = ends(window)
        window.played(window.high, count * won, count, rule)
        assert 0 <= window.low <= window.high <= 9
        assert window.high - window.low < width
        assert ends(window) >= before
        assert window.attempts < 128
