"""Players of tool environments that understand nothing: what they win is won without skill."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from spade_jax.environments.calls import Call
from spade_jax.environments.tools import Toolbox

WORD = re.compile(r"[^\s\"'{}\[\]:,;.!?()]+")
NUMBER = re.compile(r"-?\d{1,9}")
QUOTED = re.compile(r"\"([^\"\n]{1,60})\"|'([^'\n]{1,60})'")

ODD = {
    "string": ("", "x" * 1000, "\u65e5\u672c\u8a9e \U0001f600 \\boxed{done} </tool_call>"),
    "integer": (-1, 0, 10**12),
    "number": (-1.5, 0, 1e300),
}


def odd_calls(toolbox: Toolbox) -> list[Call]:
    """Calls that nobody expects but the schemas allow, and one of a tool that does not exist."""
    calls = [Call("no_such_tool", {})]
    for name, schema in toolbox.schemas.items():
        for number in range(3):
            source = random.Random(number)
            arguments = {}
            for key, part in schema.get("properties", {}).items():
                odd = ODD.get(part.get("type")) if "enum" not in part else None
                arguments[key] = odd[number] if odd else random_value(part, "", source)
            call = Call(name, arguments)
            if not toolbox.wrong(call):
                calls.append(call)
    return calls


def random_call(toolbox: Toolbox, shown: str, source: random.Random) -> Call:
    """A call of any tool with arguments of the right types, taken from what has been shown."""
    name = source.choice(list(toolbox.schemas))
    schema = toolbox.schemas[name]
    required = schema.get("required", [])
    arguments = {
        key: random_value(part, shown, source)
        for key, part in schema.get("properties", {}).items()
        if key in required or source.random() < 0.5
    }
    return Call(name, arguments)


def random_value(schema: Mapping[str, Any], shown: str, source: random.Random) -> Any:
    """A value that the schema allows, as far as types, enums and bounds say it."""
    if "enum" in schema or "const" in schema:
        return source.choice(schema.get("enum") or [schema.get("const")])
    if schema.get("anyOf"):
        return random_value(source.choice(schema["anyOf"]), shown, source)
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = source.choice(kind)
    if kind in ("integer", "number"):
        return _number(schema, [int(number) for number in NUMBER.findall(shown)], source)
    if kind == "array":
        items = schema.get("items")
        part = items if isinstance(items, dict) else {}
        length = source.randint(schema.get("minItems", 0), max(2, schema.get("minItems", 0)))
        return [random_value(part, shown, source) for _ in range(length)]
    if kind == "object":
        parts = schema.get("properties", {})
        return {key: random_value(part, shown, source) for key, part in parts.items()}
    if kind == "boolean":
        return source.random() < 0.5
    return None if kind == "null" else _text(shown, source)


def _number(schema: Mapping[str, Any], seen: Sequence[int], source: random.Random) -> int:
    low, high = schema.get("minimum", 0), schema.get("maximum", 10)
    fitting = [number for number in seen if low <= number <= schema.get("maximum", number)]
    if fitting and source.random() < 0.7:
        return source.choice(fitting)
    return source.randint(int(low), max(int(low), int(high)))


def _text(shown: str, source: random.Random) -> str:
    quoted = [first or second for first, second in QUOTED.findall(shown)]
    pools = [pool for pool in (quoted, WORD.findall(shown)) if pool]
    return source.choice(source.choice(pools)) if pools else "a"
