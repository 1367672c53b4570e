r"""Program and action parsing: vectors of the method's appendix D (last box wins) and fuzz."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.environments import interface, parsing
from spade_jax.environments.parsing import ParseFailure, box_content, parse_action, parse_source

PROGRAM = "class OneEnv:\n    pass\n"
OTHER = "class OtherEnv:\n    pass\n"


def fence(code: str, label: str = "python") -> str:
    return f"```{label}\n{code}```\n"


@pytest.mark.parametrize(
    ("reply", "source"),
    [
        (f"Here:\n{fence(PROGRAM)}Done.", PROGRAM),
        (fence(PROGRAM, "py"), PROGRAM),
        (fence(PROGRAM, "Python"), PROGRAM),
        (fence(PROGRAM) + fence(OTHER), OTHER),
        (fence(PROGRAM) + "Usage:\n" + fence("env = OneEnv()\n"), PROGRAM),
        (fence(PROGRAM) + "Fixed:\n" + fence("class OtherEnv(:\n"), PROGRAM),
        (f"<think>{fence(OTHER)}</think>{fence(PROGRAM)}", PROGRAM),
        (f"{fence(OTHER)}</think>\n{fence(PROGRAM)}", PROGRAM),
        (f"{fence(PROGRAM)}<think>{fence(OTHER)}", PROGRAM),
        (fence("some text\n", "text") + fence(PROGRAM), PROGRAM),
        (fence(PROGRAM) + "then ```inline``` and\n```python\nclass Cut", PROGRAM),
        (PROGRAM, PROGRAM),
        ("\n\nimport math\n" + PROGRAM + "\n", "import math\n" + PROGRAM),
        ("   ```python\n" + PROGRAM + "   ```", PROGRAM),
    ],
)
def test_source(reply, source):
    assert parse_source(reply) == source


def test_a_fence_inside_a_string_does_not_end_the_program():
    code = 'class OneEnv:\n    """\n```\n    text\n```\n    """\n'
    assert parse_source(fence(code)) == code


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "no_code"),
        ("I cannot do that.", "no_code"),
        ("<think>" + fence(PROGRAM), "no_code"),
        (fence("x = 1\n", "text"), "no_code"),
        ("```python\n" + PROGRAM, "unclosed_fence"),
        (fence("class OneEnv(:\n"), "syntax"),
        ("class OneEnv:\nno program", "syntax"),
        (fence("class OneEnv: pass\n\0\n"), "syntax"),
        (fence("x = " + "-" * 50000 + "1\n"), "syntax"),
        (fence("x = " + "(" * 50000 + "\n"), "syntax"),
        (fence("x = " + "a." * 50000 + "a\n"), "syntax"),
        (fence(PROGRAM + "#" * parsing.MAX_SOURCE + "\n"), "too_long"),
    ],
)
def test_failures_are_typed(reply, kind):
    with pytest.raises(ParseFailure) as caught:
        parse_source(reply)
    assert caught.value.kind == kind
    assert caught.value.reason


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (r"\boxed{move north}", "move north"),
        (r"a \boxed{x} b \boxed{y}", "y"),
        (r"\boxed{{42}}", "42"),
        (r"\boxed{ { {42} } }", "42"),
        (r"\boxed{a{b}c}", "a{b}c"),
        (r"\boxed{{a}{b}}", "{a}{b}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{a \boxed{5} b}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed {5}", "5"),
        ("\\boxed{\n 5\n}", "5"),
        (r"\boxed{1} then \boxed{unfinished", "1"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{unfinished", None),
        ("no box", None),
        (r"boxed{5}", None),
    ],
)
def test_box(message, content):
    assert box_content(message) == content


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (r"so \boxed{7}.", r"\boxed{7}"),
        (r"<think>\boxed{1}</think> \boxed{2}", r"\boxed{2}"),
        (r"<think>\boxed{1}</think> two ", "two"),
        (r"\boxed{1}</think>a</think>\boxed{3}", r"\boxed{3}"),
        (r"<think>\boxed{1}", ""),
        (r"<think>a</think><think>\boxed{1}", ""),
        ("  go north \n", "go north"),
        (r"\boxed{}", r"\boxed{}"),
        (r"\boxed {{5}}", r"\boxed{5}"),
    ],
)
def test_action(reply, action):
    assert parse_action(reply) == action


def test_content_is_the_box_or_the_message():
    assert interface.content("\\boxed{ north }") == "north"
    assert interface.content(" north\n") == "north"


balanced = st.recursive(
    st.text(alphabet="ab 1", max_size=5),
    lambda inner: st.tuples(inner, inner, inner).map(lambda t: t[0] + "x{" + t[1] + "}" + t[2]),
    max_leaves=8,
)


@given(st.text(), balanced, st.text(alphabet="abc{} \n", max_size=20))
def test_last_balanced_box_is_found_whole(before, content, after):
    assert box_content(before + parsing.boxed("x" + content) + after) == ("x" + content).strip()


@given(st.text(alphabet="\\boxed{} a", max_size=80))
def test_box_content_is_a_balanced_substring_of_the_message(message):
    content = box_content(message)
    if content is None:
        # The slow way: no opening has a balanced rest.
        for opening in re.finditer(r"\\boxed\s*\{", message):
            rest = message[opening.end() :]
            depths = [1 + rest[:n].count("{") - rest[:n].count("}") for n in range(len(rest) + 1)]
            assert 0 not in depths
    else:
        assert content in message
        assert content.count("{") == content.count("}")


@given(st.text(max_size=200))
def test_any_reply_gives_a_program_or_a_typed_failure(reply):
    try:
        source = parse_source(reply)
    except ParseFailure as failure:
        outcome = failure.kind
    else:
        outcome = parsing.syntax_error(source)
    assert outcome in ("", "no_code", "unclosed_fence", "syntax", "too_long")
