"""Runs and clusters of near-duplicates in sequences whose answer is known."""

import math
import re

import pytest

from spade_jax.analysis import collapse
from spade_jax.environments import interface

EXAMPLES = list(interface.examples().values())


def repainted(source, number):
    """The same game with other names, numbers, texts and comments."""
    for name in ("number", "holes", "code", "turn", "match", "place"):
        source = re.sub(rf"\b{name}\b", f"{name}_{number}", source)
    return f"# version {number}\n{source.replace('200', str(200 + number))}"


def written(order):
    return [repainted(EXAMPLES["abc".index(letter)], at) for at, letter in enumerate(order)]


@pytest.mark.parametrize(
    ("order", "run", "start", "effective"),
    [("", 0, 0, 0), ("a", 1, 0, 1), ("abc", 1, 0, 3), ("aabbbc", 3, 2, None), ("cccc", 4, 0, 1),
     ("abababab", 1, 0, 2)],
)  # fmt: skip
def test_runs_of_near_duplicates(order, run, start, effective):
    found = collapse.find(written(order))
    assert [order[found.clusters.index(c)] for c in found.clusters] == list(order)
    assert (found.longest_run, found.run_start) == (run, start)
    if effective is not None:
        assert found.effective == pytest.approx(effective)


def test_the_effective_number_has_a_closed_form():
    shares = [3 / 6, 2 / 6, 1 / 6]
    expected = math.prod(share**-share for share in shares)
    assert collapse.find(written("abacba")).effective == pytest.approx(expected)


@pytest.mark.parametrize(
    ("order", "alarm"),
    [("a" * 12, False), ("a" * 13, True), ("abc" * 8, False), ("aab" * 8, True),
     ("aab" * 7, False)],
)  # fmt: skip
def test_the_alarm(order, alarm):
    assert collapse.find(written(order)).alarm is alarm


def test_a_skeleton_has_no_names_and_another_game_has_another():
    own = [collapse.skeleton(source) for source in EXAMPLES]
    for source, skeleton in zip(EXAMPLES, own, strict=True):
        assert collapse.skeleton(repainted(source, 7)) == skeleton
    assert len(own[0] & own[1]) / len(own[0] | own[1]) < 0.3


def test_what_is_no_python_has_no_skeleton():
    assert collapse.skeleton("x = (1 + 2") == frozenset()


def test_any_program_joins_where_all_are_alike():
    assert collapse.find([EXAMPLES[0], EXAMPLES[1]], alike=0.0).clusters == [0, 0]
