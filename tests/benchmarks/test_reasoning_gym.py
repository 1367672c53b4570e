"""Reasoning-Gym hard: items of the published evaluation, scored by the package, floors, oracle."""

import ast
import asyncio
import collections
import json

import pytest
import reasoning_gym as package

from spade_jax.benchmarks import reasoning_gym, runner
from spade_jax.benchmarks.interface import Absent
from spade_jax.benchmarks.reasoning_gym_backend import FORMULAS, LITERALS, harmless
from spade_jax.benchmarks.reasoning_gym_tasks import HARD, TASKS
from tests.benchmarks.scripted_policy import ScriptedPolicy

FEW = (
    *("chain_sum", "syllogism", "arc_1d", "game_of_life_halting", "prime_factorization"),
    *("simple_integration", "polynomial_multiplication"),
)
WITHOUT_GOLD = {"graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
WRONG_GOLD = {"jugs/432"}  # the package refuses its own answer


class Quiet:
    def advance(self):
        pass


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A benchmark of a few tasks, and its items."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        benchmark = reasoning_gym.ReasoningGym("few", "Few", 42, reasoning_gym.INDICES, FEW)
        return benchmark, benchmark.items()


DRESSES = (
    "<answer>{}</answer>",
    "<think><answer>no</answer></think>First <answer>a</answer>, then <answer>\n{}\n</answer>",
    "<answer>\\boxed{{{}}}</answer>",
    "It is \\boxed{{{}}}.",
)
PLAYERS = {
    "oracle": lambda item: DRESSES[item.data["index"] % 4].format(item.data["gold"]),
    "silence": lambda item: "I do not know.",
    "junk": lambda item: "<answer>xyz</answer>",
}


@pytest.fixture(scope="module")
def outcomes(few):
    """Player -> item -> outcome; all by the same workers."""
    benchmark, items = few

    async def go():
        async with benchmark:
            return {
                player: {
                    item.name: await benchmark.attempt(
                        item, ScriptedPolicy(lambda _, item=item, say=say: [say(item)])
                    )
                    for item in items
                }
                for player, say in PLAYERS.items()
            }

    return asyncio.run(go())


def test_the_table_has_100_tasks_whose_columns_follow_the_packages_families():
    sizes = {column: len(tasks) for column, tasks in HARD.items()}
    assert sizes == {"math": 31, "algorithmic": 36, "cognition": 24, "logic": 9}
    assert list(reasoning_gym.INDICES) == [432, 68, 489, 121, 120, 318, 406, 165]
    families = collections.defaultdict(set)
    for task, column in TASKS.items():
        families[column].add(package.factory.DATASETS[task][0].__module__.split(".")[1])
    assert families == {
        "math": {"algebra", "arithmetic", "geometry", "graphs"},
        "algorithmic": {"algorithmic", "code"},
        "cognition": {"arc", "games", "cognition"},
        "logic": {"logic", "induction"},
    }
    left_out = {"boxnet", "coin_flip", "composite", "kakurasu", "path_star", "survo"}
    assert set(package.factory.DATASETS) - set(TASKS) == left_out


def test_items_are_the_packages_own(few):
    _, items = few
    assert len({item.name for item in items}) == len(items) == 8 * len(FEW)
    for item in items:
        if item.data["task"] == "polynomial_multiplication":
            continue  # the order of its factors depends on the salt of hashes
        options = HARD[item.column][item.data["task"]]
        dataset = package.create_dataset(item.data["task"], seed=42, size=500, **options)
        entry = dataset[item.data["index"]]
        assert item.data["question"] == entry["question"]
        assert ast.literal_eval(item.data["entry"])["answer"] == entry["answer"]


def test_gold_answers_are_right_dressed_and_undressed(outcomes):
    assert {outcome.score for outcome in outcomes["oracle"].values()} == {1}
    assert {outcome.verdict for outcome in outcomes["oracle"].values()} == {""}


def test_junk_and_silence_are_losses_that_count(few, outcomes):
    _, items = few
    for outcome in outcomes["silence"].values():
        assert (outcome.score, outcome.verdict) == (0, "no answer")
    junk = outcomes["junk"]
    verdicts = {name.split("/")[0]: outcome.verdict for name, outcome in junk.items()}
    assert verdicts["prime_factorization"] == "raised ValueError"  # of the package's scorer
    assert verdicts["chain_sum"] == "wrong"
    assert verdicts["game_of_life_halting"] == ""  # the package takes any text there
    assert len(junk) == len(items)


def test_floors_are_those_of_the_data(few):
    benchmark, items = few
    floors = benchmark.floors()
    assert floors["no answer"]["algorithmic"] == 0
    answers = collections.Counter(
        item.data["gold"] for item in items if item.data["task"] == "syllogism"
    )
    (_, most), *_ = answers.most_common(1)
    assert most > 4  # so the most common of the others is always that one
    assert floors["constant answer"]["logic"] == 100 * most / 8
    assert floors["constant answer"]["algorithmic"] == 100


def test_items_are_kept_and_another_version_is_refused(few, tmp_path, monkeypatch):
    benchmark, _ = few
    protocol = json.dumps(benchmark.protocol())
    assert "0.1.25" in protocol
    monkeypatch.setattr(reasoning_gym, "VERSION", "0.1.23")
    with pytest.raises(Absent, match=r"is 0\.1\.25, not 0\.1\.23.*pip install"):
        benchmark.items()


@pytest.mark.parametrize(
    ("task", "answer", "expected"),
    [
        ("countdown", "(3 + 4) * 25 - 1.5", True),
        ("countdown", "__import__('os').system('x')", False),
        ("countdown", "exec(chr(49))", False),
        ("simple_integration", "x**3/3 - sqrt(2)*exp(x) + C", True),
        ("simple_integration", "x.func", False),
        ("simple_integration", "(1).__class__", False),
        ("polynomial_multiplication", "3*x**2*y - 7*z", True),
        ("puzzle24", "ｅｘｅｃ(1)", False),
        ("n_queens", "_ _ Q\nQ _ _", True),
        ("n_queens", "[['_', 'Q'], ['Q', '_']]", True),
        ("n_queens", "open('x')", False),
        ("string_insertion", "[].append", False),
        ("binary_matrix", "0 1 inf\n2 0 1", True),
    ],
)
def test_what_reaches_a_scorer_that_evaluates_can_only_compute(task, answer, expected):
    assert task in FORMULAS | LITERALS
    assert harmless(task, answer) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<answer>1</answer> <answer>2</answer>", "2"),
        ("<answer>\\boxed{2}</answer>", "2"),
        ("<answer>\\boxed{2} or 3</answer>", "\\boxed{2} or 3"),
        ('<answer>\\boxed{{"a": 1}}</answer>', '{"a": 1}'),
        ("\\boxed{{42}}", "42"),
        ('\\boxed{{"a": {"b": 1}}}', '{"a": {"b": 1}}'),
        ("<answer>2", None),
        ("2</answer>", None),
        ("<answer></answer>", ""),
    ],
)
def test_answers_are_found(reply, expected):
    assert reasoning_gym.answer(reply) == expected


@pytest.mark.slow
def test_oracle_is_right_in_all_tasks_with_a_gold_answer():
    """Makes the 800 items, of which the package cannot make one, where they are not kept yet."""
    benchmark = reasoning_gym.hard()
    items = benchmark.items()
    assert len(items) == 799
    assert benchmark.protocol()["left_out"] == ["number_sequence/121"]
    replies = {f"{benchmark.name}/{item.name}": [PLAYERS["oracle"](item)] for item in items}
    outcomes = []
    policy = ScriptedPolicy(replies.__getitem__)
    asyncio.run(runner.run(benchmark, items, policy, 4, outcomes.append, Quiet()))
    lost = {outcome.item for outcome in outcomes if outcome.score < 1} - WRONG_GOLD
    assert {name.split("/")[0] for name in lost} == WITHOUT_GOLD
    assert not any(outcome.fault for outcome in outcomes)
