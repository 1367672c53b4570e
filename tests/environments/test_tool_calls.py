"""Whatever a model writes in place of a call is read, or refused with a name."""

import itertools
import json
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.environments.calls import CANONICAL, Call, Malformed, parse_calls

NASTY = ("</tool_call>", "<tool_call>", "{", "}}", '"', "\\", '\\"', "é", "🙂", "\n")
LETTERS = string.ascii_letters + string.digits + " .,;:{}[]\"'\\<>/=\n\té🙂"


def block(text):
    return f"<tool_call>\n{text}\n</tool_call>"


def random_value(rng, depth):
    kind = rng.randrange(8 if depth else 6)
    if kind < 2:
        return "".join(rng.choices(LETTERS, k=rng.randrange(8))) + rng.choice(("", *NASTY))
    if kind == 2:
        return rng.choice((0, -1, 17, 2**53, rng.randrange(-(10**9), 10**9)))
    if kind == 3:
        return rng.choice((0.5, -1e-9, 1e300, rng.random()))
    if kind == 4:
        return rng.choice((True, False, None))
    if kind == 5:
        return rng.choice(([], {}))
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {random_name(rng): random_value(rng, depth - 1) for _ in range(rng.randrange(3))}


def random_name(rng):
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 6)))


def random_calls(rng):
    """Endless calls whose arguments are combined from 1,500 random names and values."""
    pool = [(random_name(rng), random_value(rng, 3)) for _ in range(1500)]
    while True:
        name, _ = rng.choice(pool)
        yield Call(name, dict(rng.choices(pool, k=rng.choice((0, 1, 1, 2)))))


def test_a_hundred_thousand_random_calls_come_back_exactly():
    rng = random.Random(0)
    endless, left = random_calls(rng), 100_000
    while left:
        calls = list(itertools.islice(endless, min(left, rng.randint(1, 16))))
        words = rng.choice(("", "I look first.\n", "a } b { c\n"))
        message = words + "\n".join(call.render() for call in calls)
        assert parse_calls(message) == calls
        left -= len(calls)


def xml(call):
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in call.arguments.items()}
    lines = "".join(f"<parameter={k}>\n{text}\n</parameter>\n" for k, text in texts.items())
    return f"<tool_call>\n<function={call.name}>\n{lines}</function>\n</tool_call>"


def test_the_xml_form_comes_back_exactly_where_its_tags_are_not_in_the_values():
    rng = random.Random(1)
    for call in itertools.islice(random_calls(rng), 3000):
        kinds = {key: type(value) for key, value in call.arguments.items()}
        properties = {key: {"type": "string"} for key, kind in kinds.items() if kind is str}
        assert parse_calls(xml(call), {call.name: {"properties": properties}}) == [call]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abc"), values))
def test_llama_and_envelope_forms_mean_the_same(arguments):
    call = Call("find", arguments)
    bare = json.dumps({"name": "find", "parameters": arguments})
    assert parse_calls(bare) == [call]
    assert parse_calls(f" {bare}; {bare}\n{bare}") == [call] * 3
    assert parse_calls(block(bare)) == [call]
    envelope = {"type": "function", "function": {"name": "find", "arguments": arguments}}
    assert parse_calls(block(json.dumps(envelope))) == [call]
    assert parse_calls(block(f"{bare}\n{bare}")) == [call, call]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_breaks_the_parser(text):
    for message in (text, block(text), f"<tool_call>{text}", '{"name": ' + text):
        for item in parse_calls(message):
            assert isinstance(item, Call | Malformed)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('<tool_call>\n{"name": "a", "arguments": {}}', "unclosed"),
        (block(""), "empty"),
        (block("find the order"), "json"),
        (block('{"name": "a", "arguments": {"b": 1}'), "json"),
        (block("{'name': 'a', 'arguments': {}}"), "json"),
        (block('{"name": "a", "arguments": {"b": NaN}}'), "json"),
        (block('{"name": "a", "arguments": {"b": 1e999}}'), "json"),
        (block('{"name": "a", "arguments": {"b": 1, "b": 2}}'), "json"),
        (block('{"name": "a", "arguments": {"b": "\\ud800"}}'), "json"),
        (block('["a"]'), "shape"),
        (block("<function=a>b=3</function>"), "shape"),
        (block('{"arguments": {}}'), "name"),
        (block('{"name": 3}'), "name"),
        (block('{"name": "a", "arguments": "{}"}'), "arguments"),
        (block('{"name": "a", "arguments": {}, "parameters": {}}'), "arguments"),
        (block('{"name": "a", "arguments": {"b": "' + "x" * 9000 + '"}}'), "too_long"),
        (block('{"name": "a", "arguments": {"b": ' + "[" * 40 + "]" * 40 + "}}"), "too_deep"),
        (block('{"name": "a", "arguments": {"b": ' + "[" * 99999 + "}}"), "json"),
        ('{"name": "a", "parameters": {"b": }}', "json"),
    ],
)
def test_what_is_wrong_is_named(text, kind):
    (found,) = parse_calls(text)
    assert isinstance(found, Malformed)
    assert found.kind == kind
    assert CANONICAL in found.answer


def test_a_broken_call_spares_its_neighbours():
    good = Call("a", {"b": "</tool_call>"})
    found = parse_calls("\n".join([good.render(), block("{"), good.render(), "<tool_call>{"]))
    assert [isinstance(item, Call) for item in found] == [True, False, True, False]
    assert found[0] == found[2] == good
    crowd = parse_calls(good.render() * 40)
    assert crowd[:16] == [good] * 16
    assert [item.kind for item in crowd[16:]] == ["too_many"]


def test_words_and_thoughts_are_no_calls():
    call = Call("a", {})
    assert parse_calls("I would say {x}.") == []
    assert parse_calls(f"<think>{call.render()}</think>Done.") == []
    assert parse_calls(f"<think>hm</think>{call.render()}") == [call]


def test_the_canonical_form_is_a_call():
    assert parse_calls(CANONICAL) == [Call("TOOL", {"PARAMETER": "VALUE"})]
