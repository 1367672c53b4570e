"""The wire: what is framed comes back, and no bytes whatever do more than raise WireError."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.sandbox import wire

LIMIT = 4096
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False,
    allow_infinity=False) | st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",)), max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


@given(values, st.integers(1, 7))
def test_round_trip_in_pieces(value, size):
    message = wire.encode(value, 1 << 20)
    decoder = wire.Decoder(1 << 20)
    pieces = [message[start : start + size] for start in range(0, len(message), size)]
    outcomes = [decoder.feed(piece) for piece in pieces]
    assert outcomes[:-1] == [None] * (len(pieces) - 1)
    assert outcomes[-1] == (value,)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise(data):
    for message in (data, frame(data)):
        try:
            outcome = wire.Decoder(LIMIT).feed(message)
        except wire.WireError:
            continue
        if outcome is not None:
            assert json.loads(message[4:]) == outcome[0]


@given(values, st.data())
def test_a_damaged_message_decodes_or_raises(value, data):
    message = bytearray(wire.encode(value, 1 << 20))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        outcome = wire.Decoder(LIMIT).feed(bytes(message))
    except wire.WireError:
        return
    assert outcome is None or isinstance(outcome, tuple)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nul",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"[1, -1e400]",
        b"9" * 5000,
        b'"\xff"',
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b'["a", {"b": "\\ud83d"}]',
        b"[" * 33 + b"]" * 33,
        b"[" * 2000 + b"]" * 2000,
        b'{"a":' * 33 + b"1" + b"}" * 33,
        b"1 2",
        b"\x80\x04K\x01.",
    ],
)
def test_refused_payloads(payload):
    with pytest.raises(wire.WireError):
        wire.Decoder(1 << 20).feed(frame(payload))


def test_deepest_nesting_allowed():
    payload = b"[" * wire.MAX_DEPTH + b"]" * wire.MAX_DEPTH
    assert wire.Decoder(LIMIT).feed(frame(payload)) == (json.loads(payload),)


def test_oversized_is_refused_before_the_payload_arrives():
    with pytest.raises(wire.OversizedError):
        wire.Decoder(LIMIT).feed(struct.pack(">I", LIMIT + 1))
    with pytest.raises(wire.OversizedError):
        wire.Decoder(LIMIT).feed(b"\xff\xff\xff\xff")


def test_bytes_after_a_message_are_refused():
    with pytest.raises(wire.WireError, match="1 bytes after"):
        wire.Decoder(LIMIT).feed(wire.encode(1, LIMIT) + b"x")


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}, b"x", "\ud800"])
def test_what_has_no_json_form_is_not_sent(value):
    with pytest.raises(wire.WireError):
        wire.encode([value], LIMIT)


def test_the_limit_counts_bytes_not_characters():
    assert wire.encode("é" * 10, 22)
    with pytest.raises(wire.OversizedError):
        wire.encode("é" * 10, 21)


def test_a_value_nested_in_itself_is_not_sent():
    loop: list = []
    loop.append(loop)
    with pytest.raises(wire.WireError):
        wire.encode(loop, LIMIT)
