"""Tool calls in an agent's message: what was meant, or what is wrong with it.

Read are all blocks ``<tool_call>...</tool_call>`` of a message, in order. A block holds JSON
objects ``{"name": ..., "arguments": {...}}`` (Hermes, Qwen), ``parameters`` standing for
``arguments``, or ``<function=NAME><parameter=KEY>VALUE</parameter></function>`` (Qwen-Coder). A
message without blocks that begins with such an object is taken as calls too, several parted by
semicolons or line breaks (Llama). Thinking does not count.
"""

import dataclasses
import json
import math
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from spade_jax.environments.parsing import without_thinking

OPEN, CLOSE = "<tool_call>", "</tool_call>"
BARE = re.compile(r'\s*\{\s*"(?:name|arguments|parameters|type|function)"')
FUNCTION = re.compile(r"\s*<function\s*=\s*([^>\s]+)\s*>(.*?)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter\s*=\s*([^>\s]+)\s*>(.*?)</parameter>\s*", re.DOTALL)
MAX_CALLS = 16  # of one message, unless said otherwise
MAX_CHARACTERS = 8192  # of one call
MAX_DEPTH = 16
CANONICAL = '<tool_call>\n{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>'

Kind = typing.Literal[
    "unclosed", "empty", "json", "shape", "name", "arguments", "too_long", "too_deep", "too_many"
]
Schemas = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a tool; ``arguments`` are what JSON can hold, all numbers finite."""

    name: str
    arguments: dict[str, Any]

    def render(self) -> str:
        """The canonical block: Hermes's form, which Qwen's templates give too."""
        body = {"name": self.name, "arguments": self.arguments}
        return f"{OPEN}\n{json.dumps(body, ensure_ascii=False)}\n{CLOSE}"


@dataclasses.dataclass(frozen=True)
class Malformed:
    """A call that cannot be read, and why."""

    kind: Kind
    reason: str

    @property
    def answer(self) -> str:
        """What the agent is told: the reason and the canonical form."""
        return f"Error: the call could not be read ({self.reason}). Write it as\n{CANONICAL}"


class _Wrong(Exception):
    def __init__(self, kind: Kind, reason: str):
        super().__init__(reason)
        self.malformed = Malformed(kind, reason)


def parse_calls(
    reply: str, schemas: Schemas | None = None, most: int = MAX_CALLS
) -> list[Call | Malformed]:
    """All calls of a message in order; empty if it makes none.

    Args:
      schemas: tool -> JSON Schema of its parameters: tells which values of the XML-like form,
        which are bare text, are strings.
      most: calls that a message may make; what is beyond is malformed.
    """
    message = without_thinking(reply)
    if OPEN in message:
        found = _blocks(message, schemas or {})
    elif BARE.match(message):
        found = _objects(message)
    else:
        return []
    if len(found) > most:
        reason = f"{len(found)} calls in one message; at most {most}"
        return [*found[:most], Malformed("too_many", reason)]
    return found


def _blocks(message: str, schemas: Schemas) -> list[Call | Malformed]:
    found: list[Call | Malformed] = []
    place = message.find(OPEN)
    while place >= 0:
        start = place + len(OPEN)
        try:
            calls, place = _block(message, start, schemas)
            found += calls
        except _Wrong as wrong:
            found.append(wrong.malformed)
            # The broken block ends where it says, or where the next begins.
            ends = [message.find(mark, start) for mark in (CLOSE, OPEN)]
            place = min((end for end in ends if end >= 0), default=len(message))
        place = message.find(OPEN, place)
    return found


def _block(message: str, start: int, schemas: Schemas) -> tuple[list[Call], int]:
    """The calls of a block whose content begins at ``start``, and where the block ends."""
    start += len(message[start:]) - len(message[start:].lstrip())
    calls: list[Call] = []
    while not message.startswith(CLOSE, start):
        if start >= len(message):
            raise _Wrong("unclosed", f"{CLOSE} is missing")
        if function := FUNCTION.match(message, start):
            calls.append(_from_xml(function, schemas))
            start = function.end()
        else:
            value, start = _decode(message, start)
            calls.append(_call(value))
    if not calls:
        raise _Wrong("empty", "the block is empty")
    return calls, start + len(CLOSE)


def _objects(message: str) -> list[Call | Malformed]:
    """Bare JSON objects; the first broken one ends the message."""
    found: list[Call | Malformed] = []
    start = len(message) - len(message.lstrip())
    while start < len(message):
        try:
            value, start = _decode(message, start)
            found.append(_call(value))
        except _Wrong as wrong:
            return [*found, wrong.malformed]
        if message.startswith(";", start):
            start += 1 + len(message[start + 1 :]) - len(message[start + 1 :].lstrip())
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _no_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return values


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_no_twins)


def _decode(message: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at ``start`` and where what follows it begins."""
    try:
        value, end = _DECODER.raw_decode(message, start)
    except (ValueError, RecursionError) as error:
        raise _Wrong("json", f"no JSON: {error}") from error
    if end - start > MAX_CHARACTERS:
        raise _Wrong("too_long", f"{end - start} characters; at most {MAX_CHARACTERS}")
    while end < len(message) and message[end].isspace():
        end += 1
    return value, end


def _call(value: Any) -> Call:
    if not isinstance(value, dict):
        raise _Wrong("shape", "a call is a JSON object")
    if isinstance(value.get("function"), dict):  # OpenAI's own envelope
        value = value["function"]
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise _Wrong("name", '"name" must be a text')
    if "arguments" in value and "parameters" in value:
        raise _Wrong("arguments", 'both "arguments" and "parameters" are given')
    arguments = value.get("arguments", value.get("parameters", {}))
    if not isinstance(arguments, dict):
        raise _Wrong("arguments", '"arguments" must be a JSON object')
    return _checked(name, arguments)


def _from_xml(function: re.Match[str], schemas: Schemas) -> Call:
    name, body = function[1], function[2]
    if len(body) > MAX_CHARACTERS:
        raise _Wrong("too_long", f"{len(body)} characters; at most {MAX_CHARACTERS}")
    properties = schemas.get(name, {}).get("properties", {})
    arguments: dict[str, Any] = {}
    end = 0
    for parameter in PARAMETER.finditer(body):
        if body[end : parameter.start()].strip():
            raise _Wrong("shape", "text between the parameters")
        if parameter[1] in arguments:
            raise _Wrong("shape", f"parameter {parameter[1]} stands twice")
        text = parameter[2].removeprefix("\n").removesuffix("\n")
        arguments[parameter[1]] = _typed(text, properties.get(parameter[1], {}))
        end = parameter.end()
    if body[end:].strip():
        raise _Wrong("shape", "text that belongs to no parameter")
    return _checked(name, arguments)


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """A string where the schema says so, else the JSON value that the text is, else the text."""
    if schema.get("type") == "string":
        return text
    try:
        value, end = _DECODER.raw_decode(text.strip())
    except (ValueError, RecursionError):
        return text
    return value if end == len(text.strip()) else text


def _checked(name: str, arguments: dict[str, Any]) -> Call:
    """The call, all of which can be sent to an environment."""
    _check(name, 0)
    _check(arguments, 0)
    return Call(name, arguments)


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Wrong("too_deep", f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _Wrong("json", "text holds a lone surrogate") from error
    elif isinstance(value, float) and not math.isfinite(value):
        raise _Wrong("json", "a number is too large")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
