"""Calls dispatched by name do what the official executor makes of the same calls as text."""

import copy
import random

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

from spade_jax.benchmarks import bfcl, bfcl_backend
from tests.benchmarks import bfcl_data

OFFICIAL = multi_turn_utils.execute_multi_turn_func_call


@pytest.fixture(autouse=True)
def official_checker(monkeypatch):
    """Put back after each test."""
    monkeypatch.setattr(multi_turn_checker, "execute_multi_turn_func_call", OFFICIAL)


def forget():
    """The official executor keeps its instances by the name of the dialogue."""
    for name in [name for name in vars(multi_turn_utils) if name.endswith("_instance")]:
        delattr(multi_turn_utils, name)


def as_text(calls):
    """As the official handlers write calls for the executor."""
    return [f"{n}({','.join(f'{k}={v!r}' for k, v in words.items())})" for n, words in calls]


def official_verdict(entry, truth, turns):
    turns = [[as_text(step) for step in steps] for steps in turns]
    category = entry["id"].rsplit("_", 1)[0]
    multi_turn_checker.execute_multi_turn_func_call = OFFICIAL
    forget()
    found = multi_turn_checker.multi_turn_checker(turns, truth, entry, category, "official")
    return "" if found["valid"] else found["error_type"]


def gold(truth):
    return [
        [[(call.name, call.arguments) for call in map(bfcl_data.call, calls)]] if calls else []
        for calls in truth
    ]


def spoiled(turns, rng):
    """The turns with one thing changed."""
    turns = copy.deepcopy(turns)
    step = rng.choice([step for steps in turns for step in steps])
    place = rng.randrange(len(step))
    name, words = step[place]
    match rng.randrange(6):
        case 0:
            del step[place]
        case 1:
            step.append(step[place])
        case 2:
            step[place] = "no_such_function", words
        case 3:
            step[place] = name, words | {"no_such_parameter": 1}
        case 4:
            step.insert(0, step.pop())
        case 5 if words:
            key = rng.choice(sorted(words))
            other = {str: "another", bool: 3, int: 7, float: 0.5}.get(type(words[key]), [])
            step[place] = name, words | {key: other}
    return turns


@pytest.mark.parametrize("category", bfcl.CATEGORIES)
def test_verdicts_are_the_official_ones(category):
    rng = random.Random(category)
    verdicts = []
    for entry, answer in rng.sample(bfcl_data.pairs(category), 30):
        truth = answer["ground_truth"]
        for turns in (gold(truth), spoiled(gold(truth), rng), spoiled(gold(truth), rng)):
            ours = bfcl_backend.check(entry, truth, turns)
            assert ours == official_verdict(entry, truth, turns), (entry["id"], turns)
            verdicts.append(ours)
    assert verdicts.count("") >= 30
    assert sum(map(bool, verdicts)) >= 20  # the spoiled ones put it to the test


@pytest.mark.parametrize("category", ["base", "long_context"])
def test_results_are_the_official_ones(category):
    for entry, answer in random.Random(category).sample(bfcl_data.pairs(category), 20):
        turns = gold(answer["ground_truth"])
        steps = [step for steps in turns for step in steps]
        forget()
        expected = [
            OFFICIAL(
                as_text(step),
                entry["initial_config"],
                entry["involved_classes"],
                "policy",
                entry["id"],
                long_context=category == "long_context",
            )[0]
            for step in steps
        ]
        for count in range(1, len(steps) + 1):
            assert bfcl_backend.execute(entry, steps[:count]) == expected[count - 1]


def test_nothing_but_public_methods_can_be_called():
    entry, _ = bfcl_data.pairs("base")[0]
    calls = [
        ("_load_scenario", {"scenario": {}}),
        ("__class__", {}),
        ("open", {"file": "/etc/hostname"}),
        ("root", {}),
        ("exit", {}),
        ("pwd", {"self": 1}),
        ("__import__('os').getcwd", {}),
    ]
    results = bfcl_backend.execute(entry, [calls])
    assert all(result.startswith("Error during execution: ") for result in results)
    undefined = [f"Error during execution: name '{name}' is not defined" for name, _ in calls]
    assert [r for r, u in zip(results, undefined, strict=True) if r != u] == [results[5]]


def test_arguments_are_never_evaluated():
    entry, _ = bfcl_data.pairs("base")[0]
    text = "__import__('os').system('true')"
    (said,) = bfcl_backend.execute(entry, [[("echo", {"content": text})]])
    assert text in said


def test_a_dialogue_cut_short_is_lost():
    entry, answer = bfcl_data.pairs("base")[0]
    truth = answer["ground_truth"]
    assert bfcl_backend.check(entry, truth, gold(truth)[:-1]) == "multi_turn:force_terminated"
