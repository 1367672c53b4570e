"""BFCL's dialogues: all 800 by an oracle and by silence, the rules of a turn, the prompts."""

import ast
import asyncio
import json
import textwrap
from pathlib import Path

import bfcl_eval
import pytest
from bfcl_eval.constants import default_prompts, executable_backend_config

from spade_jax.benchmarks import bfcl, runner, scores
from spade_jax.benchmarks.interface import Absent
from spade_jax.benchmarks.policy import SamplerPolicy
from spade_jax.environments.calls import Call
from spade_jax.sampling.rendering import Renderer
from tests.benchmarks import bfcl_data
from tests.benchmarks.scripted_policy import ScriptedPolicy
from tests.conftest import ScriptedSampler, make_byte_tokenizer

PACKAGE = Path(bfcl_eval.__file__).parent
CALL = Call("pwd", {}).render()


class Quiet:
    def advance(self):
        pass


@pytest.fixture(scope="module")
def items():
    return bfcl.BFCLMultiTurn().items()


def attempt(items, replies):
    """Outcomes by item of a policy that says ``replies(item)`` in each dialogue."""
    by_name = {f"bfcl_multi_turn/{item.name}": item for item in items}
    policy = ScriptedPolicy(lambda name: replies(by_name[name]))
    outcomes = []
    asyncio.run(runner.run(bfcl.BFCLMultiTurn(), items, policy, 16, outcomes.append, Quiet()))
    return {outcome.item: outcome for outcome in outcomes}, policy


def item(items, name):
    return next(item for item in items if item.name == name)


def test_there_are_four_categories_of_200(items):
    assert len({item.name for item in items}) == 800
    columns = [item.column for item in items]
    assert [columns.count(category) for category in bfcl.CATEGORIES] == [200] * 4


def test_oracle_is_right_in_all_800(items):
    outcomes, _ = attempt(items, lambda item: bfcl_data.oracle(item.data["truth"]))
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome.score != 1}
    assert not wrong
    summary = scores.summary(items, list(outcomes.values()))
    assert summary["mean"]["mean"] == 1
    assert not summary["partial"]


def test_silence_is_wrong_in_all_800(items):
    outcomes, _ = attempt(items, lambda item: ["I cannot."] * len(item.data["truth"]))
    assert {outcome.score for outcome in outcomes.values()} == {0}
    assert {outcome.verdict for outcome in outcomes.values()} == {
        "multi_turn:empty_turn_model_response"
    }
    assert not any(outcome.fault for outcome in outcomes.values())


def test_constants_are_the_wheels():
    assert default_prompts.MAXIMUM_STEP_LIMIT == bfcl.MAX_STEPS
    assert default_prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC == bfcl.MORE
    files = executable_backend_config.MULTI_TURN_FUNC_DOC_FILE_MAPPING
    assert {name: f"{file}.json" for name, file in bfcl.DOCUMENTS.items()}.items() <= files.items()
    assert f'return "{bfcl.HINT}"' in (PACKAGE / "utils.py").read_text()


def test_a_step_more_than_allowed_ends_the_dialogue(items):
    chosen = item(items, "multi_turn_base_0")
    longest = [CALL] * bfcl.MAX_STEPS
    outcomes, policy = attempt([chosen], lambda _: [*longest, CALL, "never said"])
    (outcome,) = outcomes.values()
    assert outcome.verdict == "multi_turn:force_terminated"
    assert outcome.record["said"][-1]["content"] == CALL
    # One step less, and the next turn comes.
    outcomes, policy = attempt([chosen], lambda _: [*longest, "Next.", "x", "x", "x"])
    (told,) = policy.told.values()
    assert [m["content"] for m in told if m["role"] == "user"] == [
        message["content"] for turn in chosen.data["question"] for message in turn
    ]


def test_unreadable_calls_are_none_and_the_readable_beside_them_are_made(items):
    chosen = item(items, "multi_turn_base_0")
    broken = '<tool_call>\n{"name": "pwd", "arguments": \n</tool_call>'
    outcomes, policy = attempt([chosen], lambda _: [f"{broken}\n{CALL}", broken, "x", "x", "x"])
    (outcome,) = outcomes.values()
    assert outcome.record["calls"] == [[[("pwd", {})]], [], [], []]
    (told,) = policy.told.values()
    assert [m["role"] for m in told] == ["user", "tool", "user", "user", "user"]


def test_a_policy_that_stops_answering_loses_and_is_listed(items):
    chosen = item(items, "multi_turn_base_1")
    outcomes, _ = attempt([chosen], lambda _: [CALL])
    (outcome,) = outcomes.values()
    assert (outcome.score, outcome.verdict) == (0, "not judged")
    assert outcome.fault.startswith("context")
    assert outcome.record["calls"] == [[[("pwd", {})]]]


def test_a_call_that_does_not_end_is_a_listed_loss(items):
    chosen = next(item for item in items if "MathAPI" in item.data["entry"]["involved_classes"])
    benchmark = bfcl.BFCLMultiTurn()
    benchmark._workers._deadline = 1.0
    endless = Call("power", {"base": 7, "exponent": 10**9}).render()
    policy = ScriptedPolicy(lambda _: [endless])
    outcomes = []
    asyncio.run(runner.run(benchmark, [chosen], policy, 1, outcomes.append, Quiet()))
    (outcome,) = outcomes
    assert (outcome.score, outcome.verdict) == (0, "not judged")
    assert "execute: no answer within 1 s" in outcome.fault


def test_other_data_is_refused_with_the_command_that_gets_it(monkeypatch):
    monkeypatch.setattr(bfcl, "VERSION", "2020.1.1")
    with pytest.raises(Absent, match=r"not 2020\.1\.1.*pip install"):
        bfcl.BFCLMultiTurn().items()
    monkeypatch.undo()
    monkeypatch.setattr(bfcl, "DIGEST", "0" * 64)
    with pytest.raises(Absent, match="does not hold the data"):
        bfcl.BFCLMultiTurn().items()


# The prompts against the official handler of local Qwen models. Its module needs packages that
# nothing else here does, so its one function is taken out of the source, and Qwen's own chat
# template out of that function's docstring.


def handler():
    """``_format_prompt`` of the wheel, and the template that its docstring quotes."""
    source = (PACKAGE / "model_handler" / "local_inference" / "qwen_fc.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    function = next(node for node in functions if node.name == "_format_prompt")
    quoted = ast.get_source_segment(source, function.body[0])
    template = quoted.strip('"').split('"chat_template":', 1)[1]
    function.decorator_list.clear()
    found = {"json": json}
    exec(compile(ast.Module([function], []), "qwen_fc", "exec"), found)
    return found["_format_prompt"], textwrap.dedent(template).strip() + "\n"


@pytest.mark.parametrize("name", ["multi_turn_base_3", "multi_turn_miss_func_7"])
def test_prompts_are_the_official_ones(items, name):
    format_prompt, template = handler()
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = template
    renderer = Renderer(tokenizer)
    chosen = item(items, name)
    replies = list(bfcl_data.oracle(chosen.data["truth"]))
    sampler = ScriptedSampler(renderer, lambda request, _: replies[len(sampler.requests) - 1])
    outcomes = []
    policy = SamplerPolicy(sampler, renderer, context=1 << 20)
    assert policy.protocol()["tools"] == "chat template"
    asyncio.run(runner.run(bfcl.BFCLMultiTurn(), [chosen], policy, 1, outcomes.append, Quiet()))
    assert outcomes[0].score == 1
    said = outcomes[0].record["said"]
    assert len(sampler.requests) == len(replies)
    tools = official_tools(name)
    asked = [place for place, message in enumerate(said) if message["role"] == "assistant"]
    for request, place in zip(sampler.requests, asked, strict=True):
        prompt = tokenizer.decode(request.tokens, skip_special_tokens=False)
        assert prompt == format_prompt(None, said[:place], tools)


def official_tools(name):
    """A dialogue's functions, as the wheel's ``utils`` prepares them."""
    category = name.removeprefix("multi_turn_").rsplit("_", 1)[0]
    entry = next(entry for entry, _ in bfcl_data.pairs(category) if entry["id"] == name)
    held = {name for names in entry.get("missed_function", {}).values() for name in names}
    files = executable_backend_config.MULTI_TURN_FUNC_DOC_FILE_MAPPING
    documents = [
        document
        for kind in entry["involved_classes"]
        for document in bfcl_data.rows(f"multi_turn_func_doc/{files[kind]}")
    ]
    return [
        document | {"description": document["description"] + bfcl.HINT}
        for document in documents
        if document["name"] not in held
    ]
