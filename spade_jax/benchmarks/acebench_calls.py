"""Calls as ACEBench has them written, ``[name(key='value', ...), ...]``: read, never evaluated.

The official executor takes brackets and single quotes off both ends and parses what is left as
Python; it drops arguments without a name, and takes a bare name for a text. So does this, but what
is no literal is refused: the official one evaluates some of it.
"""

import ast
import math
from typing import Any

from spade_jax.environments.calls import Call

MAX_DEPTH = 16
MAX_INTEGER = 2**63  # and beyond, which JSON readers differ on


class Unreadable(ValueError):
    """A message that is no list of calls, and why."""


def parse(message: str) -> list[Call]:
    """The calls of a message, in order; at least one.

    To be asked in a worker process only: deep nesting can exhaust Python's parser.

    Raises:
      Unreadable: there is anything but calls in it, or an argument that is no literal.
    """
    bare = message.strip().strip("[]'").strip()
    try:
        body = ast.parse(f"[{bare}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"no Python: {error}") from error
    if not isinstance(body, ast.List) or not body.elts:
        raise Unreadable("no list of calls")
    return [_call(node) for node in body.elts]


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        raise Unreadable(f"{type(node).__name__} is no call")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Unreadable("** in a call")
        arguments[keyword.arg] = _value(keyword.value, 0)
    return Call(ast.unparse(node.func), arguments)


def _value(node: ast.expr | None, depth: int) -> Any:
    """What an argument says, as JSON can hold it."""
    if depth > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH}")
    match node:
        case ast.Constant(value=value):
            return _constant(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return _constant(-value)
        case ast.Name(id=name):
            return name
        case ast.List(elts=nodes) | ast.Tuple(elts=nodes):
            return [_value(each, depth + 1) for each in nodes]
        case ast.Dict(keys=keys, values=nodes):
            names = [_value(key, depth + 1) for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise Unreadable("a key is no text")
            values = [_value(each, depth + 1) for each in nodes]
            return dict(zip(names, values, strict=True))
    raise Unreadable(f"{type(node).__name__} is no literal")


def _constant(value: Any) -> Any:
    match value:
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise Unreadable("text holds a lone surrogate") from error
            return value
        case None | bool():
            return value
        case int() if -MAX_INTEGER <= value < MAX_INTEGER:
            return value
        case float() if math.isfinite(value):
            return value
    raise Unreadable(f"a {type(value).__name__} that JSON does not hold")
