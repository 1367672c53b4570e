"""Dialogues whose conduct is known."""

import pytest

from spade_jax.analysis import conduct

CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "look", "argu\n</tool_call>'


def record(*replies):
    said = [{"role": "user", "content": "x" * 1000}]
    for reply in replies:
        said += [{"role": "assistant", "content": reply}, {"role": "tool", "content": "y"}]
    return {"said": said}


@pytest.mark.parametrize(
    ("replies", "faults", "probes"),
    [
        ((CALL, CALL, "done", CALL, "more"), 0, 2),
        (("done",), 0, 0),
        ((CALL, BROKEN, "done"), 1 / 3, 2),
        ((CALL, CALL), 0, 2),
    ],
)
def test_conduct(replies, faults, probes):
    found = conduct.of(record(*replies))
    assert (found.faults, found.probes) == pytest.approx((faults, probes))
    assert found.length == pytest.approx(sum(map(len, replies)) / len(replies))


def test_who_said_nothing_has_none():
    assert conduct.of({}) is None
    assert conduct.of(record()) is None


@pytest.mark.parametrize(("answer", "faults"), [("B", 0), (None, 1)])
def test_a_single_reply_is_the_answer(answer, faults):
    assert conduct.of({"reply": "four", "answer": answer}) == conduct.Conduct(4, faults, 0)
