"""Length-prefixed JSON between the host and a child that may send anything.

A message is a 4-byte big-endian length and that many bytes of UTF-8 JSON. The reader trusts
nothing: the length is checked before a byte is kept, numbers must be finite, text must be valid
Unicode, nesting is bounded. Nothing is ever unpickled. Standard library only: the zygote and its
children import this module too.
"""

import json
import math
import struct
from typing import Any, NoReturn

HEADER = struct.Struct(">I")
MAX_DEPTH = 32


class WireError(ValueError):
    """A message that breaks the rules of the wire."""


class OversizedError(WireError):
    """A message longer than the receiver accepts."""


def encode(value: Any, limit: int) -> bytes:
    """One framed message.

    Args:
      value: what JSON can hold: dict with text keys, list, str, int, finite float, bool, None.
      limit: largest payload in bytes, the header not counted.

    Raises:
      OversizedError: the payload is longer than ``limit``.
      WireError: ``value`` has no JSON form.
    """
    try:
        payload = _ENCODER.encode(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if len(payload) > limit:
        raise OversizedError(f"message of {len(payload)} bytes exceeds the limit of {limit}")
    return HEADER.pack(len(payload)) + payload


def decode(payload: bytes) -> Any:
    """The JSON value of a payload, with every rule of this module checked.

    Raises:
      WireError: invalid UTF-8 or JSON, a number that is not finite, a lone surrogate, or nesting
        deeper than ``MAX_DEPTH``.
    """
    try:
        text = payload.decode("utf-8")
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if end < len(text):
        raise WireError(f"{len(text) - end} characters after the value")
    _check(value, MAX_DEPTH)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise WireError(f"{name} is not a finite number")


# Made once: json.dumps and json.loads make one for every message when given options. What is nested
# in itself ends in a RecursionError.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _check(value: Any, depth: int) -> None:
    kind = type(value)  # exact: JSON gives no subclasses
    if kind is str:
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise WireError("text holds a lone surrogate") from error
    elif kind is float:
        if not math.isfinite(value):
            raise WireError("a number is not finite")
    elif kind is list or kind is dict:
        if depth == 0:
            raise WireError(f"nested deeper than {MAX_DEPTH}")
        if kind is dict:
            for key in value:
                _check(key, depth - 1)
            value = value.values()
        for item in value:
            _check(item, depth - 1)


class Decoder:
    """Assembles one message from the pieces in which a stream delivers it.

    The peer answers exactly one message to each request, so bytes beyond a complete message are
    an error rather than the start of the next.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> tuple[Any] | None:
        """Takes what arrived; a 1-tuple with the value once a message is complete, else None.

        Raises:
          OversizedError: the announced length exceeds the limit.
          WireError: a bad payload, or bytes after the message.
        """
        buffer = self._buffer
        buffer += piece
        if len(buffer) < HEADER.size:
            return None
        (length,) = HEADER.unpack_from(buffer)
        if length > self._limit:
            raise OversizedError(f"message of {length} bytes exceeds the limit of {self._limit}")
        end = HEADER.size + length
        if len(buffer) < end:
            return None
        if len(buffer) > end:
            raise WireError(f"{len(buffer) - end} bytes after the end of a message")
        payload = bytes(buffer[HEADER.size :])
        buffer.clear()
        return (decode(payload),)
