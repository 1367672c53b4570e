"""The two accuracies by hand, and against the wheel's port of the official checker."""

import copy
import random

import pytest

from spade_jax.benchmarks import acebench_backend
from spade_jax.benchmarks.acebench_checker import (
    ALIASES,
    differences,
    passes_officially,
    process,
)

assert acebench_backend  # has the wheel importable without the rest of its package
from evalscope.benchmarks.acebench import checker as wheel  # noqa: E402

STATE = {
    "BaseApi": {"wifi": True, "logged_in": False},
    "MessageApi": {"inbox": {"1": {"message": "a"}, "7": {"message": "b"}}},
    "FoodPlatform": {"users": {"Ann": {"balance": 3.5}}, "orders": [{"cups": 2}, {"cups": 1}]},
}
TRUTH = [{name: each} for name, each in STATE.items()]


def changed(edit):
    """The truth, edited as mapping; as the data has it."""
    truth = copy.deepcopy(STATE)
    edit(truth)
    return [{name: each} for name, each in truth.items()]


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda t: None, []),
        (lambda t: t["MessageApi"]["inbox"].pop("1"), []),  # there may be more
        (lambda t: t["BaseApi"].update(volume=3), []),  # no attribute of the state
        (lambda t: t["FoodPlatform"]["users"]["Ann"].update(balance=3.5), []),
        (lambda t: t["BaseApi"].update(wifi=False), ["BaseApi.wifi: True, not False"]),
        (lambda t: t["BaseApi"].pop("wifi"), ["BaseApi.wifi: not in the truth"]),
        (
            lambda t: t["MessageApi"]["inbox"].update({"8": {}}),
            ["MessageApi.inbox.8: missing"],
        ),
        (
            lambda t: t["MessageApi"]["inbox"]["7"].update(message="B"),
            ["MessageApi.inbox.7: {'message': 'b'}, not {'message': 'B'}"],
        ),
        (
            lambda t: t["FoodPlatform"]["orders"].reverse(),
            ["FoodPlatform.orders: [{'cups': 2}, {'cups': 1}], not [{'cups': 1}, {'cups': 2}]"],
        ),
        (
            lambda t: t["FoodPlatform"].update(orders={"1": {"cups": 2}}),
            ["FoodPlatform.orders: [{'cups': 2}, {'cups': 1}] is no mapping"],
        ),
        (lambda t: t.pop("BaseApi"), ["BaseApi: not in the truth"]),
        (lambda t: t.update(Travel={}), ["Travel: not in the state"]),
    ],
)
def test_states_by_hand(edit, found):
    assert differences(STATE, changed(edit)) == found


def test_order_of_the_classes_is_nothing():
    assert differences(STATE, TRUTH[::-1]) == []
    assert passes_officially(STATE, TRUTH[::-1])


@pytest.mark.parametrize(("spelt", "meant"), ALIASES.items())
def test_a_misspelt_class_counts_but_not_officially(spelt, meant):
    state = {"Travel": {"users": {}}, meant: {"x": 1}}
    right = [{"Travel": {"users": {}}}, {spelt: {"x": 1}}]
    assert differences(state, right) == []
    wrong = [{"Travel": {"users": {}}}, {spelt: {"x": 2}}]
    assert differences(state, wrong) == [f"{meant}.x: 1, not 2"]
    assert passes_officially(state, wrong)
    assert wheel.check_agent_end_state([{k: v} for k, v in state.items()], wrong)["valid"]


def test_a_class_by_another_name_is_missing():
    state, truth = {"BaseApi": {"wifi": True}}, [{"baseapi": {"wifi": True}}]
    assert differences(state, truth) == [
        "baseapi: not in the state",
        "BaseApi: not in the truth",
    ]
    assert passes_officially(state, truth)


def spoiled(rng, value):
    """A state or truth like this one, something in it perhaps other."""
    if isinstance(value, dict):
        kept = [(key, spoiled(rng, each)) for key, each in value.items() if rng.random() > 0.04]
        return dict(kept) | ({"new": 1} if rng.random() < 0.04 else {})
    if isinstance(value, list):
        return [spoiled(rng, each) for each in value]
    return value if rng.random() > 0.03 else "other"


def test_official_verdict_is_the_wheels():
    rng = random.Random(0)
    verdicts = []
    for _ in range(400):
        state = {name: spoiled(rng, each) for name, each in STATE.items()}
        truth = [{name: spoiled(rng, each)} for name, each in STATE.items()]
        if rng.random() < 0.1:
            truth[rng.randrange(3)] = {"ReminderAPI": {}}
        theirs = wheel.check_agent_end_state([{k: v} for k, v in state.items()], truth)["valid"]
        assert passes_officially(state, truth) == theirs
        if all(entry.keys() <= STATE.keys() for entry in truth):
            assert theirs == (not differences(state, truth))
        verdicts.append(theirs)
    assert 40 < sum(verdicts) < 360


@pytest.mark.parametrize(
    ("messages", "milestones", "share"),
    [
        (["a", "b", "c"], ["a", "b", "c"], 1),
        (["a", "x", "b", "c", "y"], ["a", "b", "c"], 1),
        ([" a\n", "b"], ["a", " b "], 1),
        (["a", "c", "b"], ["a", "b", "c"], 2 / 3),  # c came before b
        (["b", "c"], ["a", "b", "c"], 0),  # nothing is looked for after what is missed
        (["a", "c"], ["a", "b", "c"], 1 / 3),
        (["a"], ["a", "a"], 1 / 2),
        (["[f(x=1)]"], ["[f(x = 1)]"], 0),  # texts, not calls
        ([], ["a"], 0),
        (["a"], [], 1),
        (["a", "c"], [["a", "b"], ["a", "c"], ["c", "a"]], 1),
        (["a", "c"], [["a", "b", "c"], ["c", "a"]], 1 / 2),
        (["a"], [[]], 1),
    ],
)
def test_milestones_by_hand_and_by_the_wheel(messages, milestones, share):
    assert process(messages, milestones) == pytest.approx(share)
    assert wheel.milestone_accuracy(messages, milestones) == pytest.approx(share, abs=5e-4)


def test_milestones_are_the_wheels():
    rng = random.Random(1)
    for _ in range(400):
        messages = rng.choices("abcd", k=rng.randrange(7))
        ways = [rng.choices("abcd", k=rng.randrange(1, 5)) for _ in range(rng.randrange(1, 4))]
        milestones = ways if rng.random() < 0.5 else ways[0]
        theirs = wheel.milestone_accuracy(messages, milestones)
        assert process(messages, milestones) == pytest.approx(theirs, abs=5e-4)
