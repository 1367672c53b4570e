"""The chain of checks: worked examples pass all, each fault is found by the check meant for it."""

import asyncio

import pytest

from spade_jax import config
from spade_jax.environments import checks, interface, players, validation
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.faults import HostFault
from spade_jax.sandbox.host import EnvironmentHost

GOOD = """
class SumEnv:
    def __init__(self, max_turns=4):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        self.turn = 0
        self.terms = [random.randint(1000, 9999) for _ in range(3)]
        return f"Add up {self.terms}. Reply with \\\\boxed{{sum}}.", {}

    def step(self, action):
        self.turn += 1
        right = action == "\\\\boxed{" + str(sum(self.terms)) + "}"
        text = "Right." if right else "Wrong, try again."
        return text, 1.0 if right else 0.0, right, self.turn >= self.max_turns, {}

    def solution(self):
        return [str(sum(self.terms))]
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD = {
    "parses": changed("self.turn += 1", "self.turn +="),
    "one_environment": GOOD + "\nclass OtherEnv(SumEnv):\n    pass\n",
    "constructs": changed("self.max_turns = max_turns", "self.max_turns = missing"),
    "resets": changed('return f"Add up', 'return "" and f"Add up'),
    "types_and_ranges": changed("1.0 if right else 0.0, right,", "0.0, int(right),"),
    "survives_garbage": changed("self.turn += 1", "self.turn += 1 + 0 * len(action[0])"),
    "deterministic": changed("random.randint(1000", "random.SystemRandom().randint(1000"),
    "responds": changed("right = action ==", "right = False and action =="),
    "terminates": changed("right, self.turn >= self.max_turns, {}", "False, False, {}").replace(
        '"Right."', '"Right " + action'
    ),
    "not_trivial": changed("right = action ==", "right = self.turn > 2 or action =="),
    "solvable": changed("return [str(sum(self.terms))]", "return [str(max(self.terms))]"),
    "hides_solution": changed("Reply with", "The answer is {sum(self.terms)}. Reply with"),
    "novel": GOOD,
}
SUBTLE = {
    "rewards beyond the range": (changed("else 0.0", "else 50"), "types_and_ranges"),
    "raises only for long numbers": (
        changed("self.turn += 1", "self.turn += 1 + 0 * int('0' + action.strip('\\\\boxed{}'))"),
        "survives_garbage",
    ),
    "depends on the wall clock": (
        changed("str(sum(self.terms)) +", "str(sum(self.terms) + __import__('time').time_ns()) +"),
        "solvable",
    ),
    "depends on the order of objects": (
        changed("self.turn = 0", "self.turn = 0; self.z = id(object()) // 16 % 4096").replace(
            "Add up", "{self.z} Add up"
        ),
        "deterministic",
    ),
    "counts its resets": (
        changed("self.turn = 0", "self.turn = 0; SumEnv.n = getattr(SumEnv, 'n', 0) + 1").replace(
            "Add up", "{SumEnv.n} Add up"
        ),
        "deterministic",
    ),
    "answers with an echo": (
        changed("right = action ==", "right = False and action ==").replace(
            '"Wrong, try again."', 'f"You said {action}."'
        ),
        "responds",
    ),
    "is the same for every seed": (changed("random.randint(1000, 9999)", "1234"), "not_trivial"),
    "is won by one word": (changed("right = action ==", "right = 'sum' in action or action =="),
                           "not_trivial"),
    "is won by a visible number": (
        changed("right = action ==", "right = any(str(n) in action for n in self.terms)"
                " or action =="),
        "not_trivial"),
    "takes more turns than a run has": (
        changed("return [str(sum(self.terms))]", "return ['x'] * 30 + [str(sum(self.terms))]"),
        "solvable"),
    "loops in its solution": (changed("return [str(sum(self.terms))]", "while True: pass"),
                              "deterministic"),
    "kills its process": (changed("self.turn += 1", "__import__('os')._exit(1)"),
                          "types_and_ranges"),
}  # fmt: skip


def validated(source, others=(), **settings):
    async def main():
        async with EnvironmentHost(config.Sandbox(step_timeout=2.0, open_timeout=2.0)) as host:
            return await validation.validate(host, source, config.Validation(**settings), others)

    return asyncio.run(main())


@pytest.mark.parametrize("name", interface.examples())
def test_worked_examples_pass_every_check(name):
    report = validated(interface.examples()[name])
    assert {check.name: check.reason for check in report.checks if check.status != "passed"} == {}
    assert report.accepted


def test_a_good_environment_is_accepted_with_its_measurements():
    report = validated(GOOD)
    assert report.accepted, report.reason
    assert tuple(check.name for check in report.checks) == validation.CHECKS["games"]
    measured = report["solvable"].measurements
    assert (measured["shortest"], measured["longest"]) == (1, 1)
    assert [int(solution[0]) > 3000 for solution in measured["solutions"]] == [True] * 3
    assert report["terminates"].measurements == {"shortest": 1, "longest": 4}


@pytest.mark.parametrize("name", validation.CHECKS["games"])
def test_every_check_refuses_what_it_is_for(name):
    report = validated(BAD[name], others=[GOOD] if name == "novel" else [])
    assert not report.accepted
    assert report[name].status == "failed", report
    assert report[name].reason


def test_bad_covers_the_chain():
    assert set(BAD) == set(validation.CHECKS["games"])


@pytest.mark.parametrize("name", SUBTLE)
def test_subtle_faults_are_found(name):
    source, check = SUBTLE[name]
    report = validated(source)
    assert not report.accepted
    assert report[check].status == "failed", report


def test_foundations_and_deaths_block_what_follows():
    report = validated(BAD["constructs"])
    after = report.checks[validation.CHECKS["games"].index("constructs") + 1 :]
    assert {check.status for check in after} == {"skipped"}
    report = validated(SUBTLE["kills its process"][0])
    assert report["types_and_ranges"].measurements == {"fault": "died"}
    assert report["solvable"].status == "skipped"


def test_an_exception_fails_its_check_only():
    report = validated(BAD["survives_garbage"])
    failed = [check.name for check in report.checks if check.status != "passed"]
    assert failed == ["survives_garbage"]


@pytest.mark.parametrize(
    "solution",
    ["def unsolved(self):\n        return []", "def solution(self):\n        return 'add them'"],
)
def test_no_solution_is_unproven_and_accepted_only_where_not_required(solution):
    source = changed("def solution(self):\n        return [str(sum(self.terms))]", solution)
    report = validated(source)
    assert report["solvable"].status == report["hides_solution"].status == "unproven"
    assert not report.accepted
    # Without the solution nothing was found that this one answers differently.
    accepted = validated(source, scored=("responds", "solvable", "hides_solution"))
    assert accepted.accepted
    assert accepted["solvable"].status == "unproven"
    assert validated(source, preset="published").accepted


def test_scored_checks_are_recorded_and_refuse_nothing():
    report = validated(BAD["not_trivial"], scored=("not_trivial",))
    assert report["not_trivial"].status == "failed"
    assert report.accepted


def test_checks_that_are_off_are_not_run():
    report = validated(BAD["not_trivial"], off=("not_trivial", "novel"))
    assert report.accepted
    assert report["not_trivial"].status == report["novel"].status == "off"
    assert report["solvable"].status == "passed"


PUBLISHED = {"parses", "constructs", "resets", "types_and_ranges"}


@pytest.mark.parametrize("name", validation.CHECKS["games"])
def test_published_refuses_what_the_published_system_refuses(name):
    report = validated(BAD[name], others=[GOOD], preset="published")
    assert report.accepted == (name not in PUBLISHED)
    ran = {check.name for check in report.checks if check.status != "off"}
    assert ran == PUBLISHED


def test_a_preset_can_be_tightened():
    report = validated(BAD["solvable"], preset="published", required=("solvable",))
    assert report.refused == report["solvable"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"required": ("solvabel",)}, "required: no check named solvabel"),
        ({"off": ("solvable",), "scored": ("solvable",)}, "solvable is listed twice"),
        ({"off": ("resets",)}, "off: without resets no other check can run"),
    ],
)
def test_impossible_lists_are_refused(settings, message):
    with pytest.raises(config.ConfigError, match=message):
        validation.modes(config.Validation(**settings))


def test_sources_are_compared_with_beginnings_as_far_as_these_go():
    long = GOOD + "\n" + "\n".join(f"# {n}\nvalue_{n} = {n}" for n in range(200))
    report = validated(long, others=[long[:1000]], required=("novel",))
    assert report["novel"].status == "failed"


def test_a_host_fault_accepts_nothing():
    class BrokenHost:
        async def open(self, *_):
            raise HostFault("the zygote died")

    with pytest.raises(HostFault):
        asyncio.run(validation.validate(BrokenHost(), GOOD, config.Validation()))


def test_trivial_play_measures_the_true_rate():
    """An environment won by any first action on one seed in five has that mean return."""
    source = changed("right = action ==", "right = self.terms[0] % 5 == 0 or action ==")
    report = validated(source, random_episodes=100)
    assert report["not_trivial"].status == "failed"
    assert "random play has a mean return of 0." in report["not_trivial"].reason


def test_similarity_is_the_jaccard_index_of_trigrams():
    assert similarity("a b c d", "a b c e") == pytest.approx(1 / 3)
    assert similarity("a b c", "x y z") == 0.0
    assert similarity("a b  c # note", "a\nb c") == 1.0
    assert similarity(GOOD, GOOD.replace("1000", "1001")) > 0.9
    examples = list(interface.examples().values())
    assert similarity(examples[0], examples[1]) < 0.5


def test_constant_actions_are_distinct_and_boxed():
    actions = players.constant_actions(["pick 'red' or 'blue': 3", "pick 'red' or 'green': 3"], 6)
    assert len(set(actions)) == 6
    assert {"\\boxed{red}", "\\boxed{3}"} <= set(actions)


def test_echoes_do_not_count_as_responses():
    results = [
        checks._without_echo(action, checks.StepResult(f"You said {action}.", 0.0, False, False))
        for action in ("\\boxed{1}", "\\boxed{test}")
    ]
    assert results[0] == results[1]
