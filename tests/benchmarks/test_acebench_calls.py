"""Calls in the official text format, against the wheel's reader; what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.benchmarks import acebench_backend
from spade_jax.benchmarks.acebench_calls import Unreadable, parse
from spade_jax.environments.calls import Call

assert acebench_backend  # has the wheel importable without the rest of its package
from evalscope.benchmarks.acebench.parser import decode_execution_calls  # noqa: E402

TEXT = st.text(st.sampled_from("ab0 _,=()[]{}\"'\\\n\té語😀"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = st.sampled_from(["add_reminder", "f", "Send_2"])
CALLS = st.builds(Call, NAMES, st.dictionaries(st.sampled_from(["a", "time", "x_1"]), VALUES))


def written(calls):
    """As a model writes them."""
    each = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in calls
    ]
    return f"[{', '.join(each)}]"


@settings(max_examples=50)
@given(st.lists(CALLS, min_size=1, max_size=3))
def test_what_is_written_is_read_as_the_wheel_reads_it(calls):
    assert parse(written(calls)) == calls
    assert decode_execution_calls(written(calls)) == [{c.name: c.arguments} for c in calls]


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ("[turn_on_wifi()]", [Call("turn_on_wifi", {})]),
        (" turn_on_wifi() ", [Call("turn_on_wifi", {})]),
        ("\n[f(a=1),\n g(b='x')]\n", [Call("f", {"a": 1}), Call("g", {"b": "x"})]),
        ("[f(a=true, b=-2.5, c=(1, 'y'))]", [Call("f", {"a": "true", "b": -2.5, "c": [1, "y"]})]),
        ("[f('dropped', a=1)]", [Call("f", {"a": 1})]),
        ("[api.f(a=1)]", [Call("api.f", {"a": 1})]),
        ("[f(a=1)", [Call("f", {"a": 1})]),
        ("['f(a=1)']", [Call("f", {"a": 1})]),
        (
            r'[f(a="Domino\'s", b={"k": [None]})]',
            [Call("f", {"a": "Domino's", "b": {"k": [None]}})],
        ),
    ],
)
def test_forms_that_are_read(message, calls):
    assert parse(message) == calls


@pytest.mark.parametrize(
    "message",
    [
        "",
        "[]",
        "finish conversation",
        "What is your name?",
        "Sure: [f(a=1)]",
        "```python\n[f(a=1)]\n```",
        "[f(a='Domino's')]",
        "[f(a=1), [g()]]",
        "[f(a=1)] + [g()]",
        "[f(a=1)], [g()]",
        "[f(a=1), 'done']",
        "[f(a=1); g()]",
        "[f(a=)]",
        "[f(**{'a': 1})]",
        "[f()()]",
        "[(lambda: 1)()]",
        "[f(a=g())]",
        "[f(a=__import__('os').system('true'))]",
        "[f(a=2 ** 9)]",
        "[f(a=f'{b}')]",
        "[f(a={1, 2})]",
        "[f(a={1: 2})]",
        "[f(a={**b})]",
        "[f(a=1j)]",
        "[f(a=b'x')]",
        "[f(a=...)]",
        "[f(a=1e999)]",
        f"[f(a={2**63})]",
        "[f(a=" + "9" * 5000 + ")]",
        "[f(a='\\ud800')]",
        "[f(a=\0)]",
        "[f(a=" + "[" * 20 + "]" * 20 + ")]",
        "[f(a=" + "(" * 9000 + ")" * 9000 + ")]",
        "[f(a=" + "-" * 100_000 + "1)]",
    ],
)
def test_what_is_no_list_of_calls_with_literals_is_refused(message):
    with pytest.raises(Unreadable):
        parse(message)
