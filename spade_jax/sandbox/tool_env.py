"""The base class of tool environments, as it runs inside the sandbox: standard library only.

:mod:`spade_jax.environments.tools` says what a subclass is to define. Revealing instructions,
advancing and scoring are done here, so that a subclass cannot get them wrong.
"""

import copy
import hashlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

STAGES = range(3, 6)
CLOSING = "That is all. When everything has been done, reply \\boxed{done} and call no tool."
OWN = ("reset", "step", "get_tools", "execute_tool", "examine")
PREFIX = "tool_"
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

Stage = tuple[str, Callable[[dict[str, Any]], Any]]


class ToolEnv:
    """A backend state, tools that act on it, and a user who asks for one thing after another."""

    schemas: Mapping[str, Mapping[str, Any]] = {}
    """Tool -> JSON Schema of its parameters, for those that are not to be derived."""

    def __init__(self, max_turns: int = 25):
        self.max_turns = max_turns

    def __init_subclass__(cls) -> None:
        taken = [name for name in OWN if name in cls.__dict__]
        if taken:
            raise TypeError(f"{cls.__name__} must not define {', '.join(taken)}: ToolEnv does")

    def setup(self, rng: Random) -> None:
        """Fills ``self.state``, drawing everything random from ``rng``."""
        raise NotImplementedError("define setup(self, rng)")

    def stages(self) -> list[Stage]:
        """The user's instructions in order, each with its criterion over the state."""
        raise NotImplementedError("define stages(self)")

    def solution(self) -> list[list[Any]]:
        """For each stage the calls (name, arguments) that meet it."""
        raise NotImplementedError("define solution(self)")

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begins an episode; only the first instruction is told."""
        self.state: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.setup(Random(seed))
        if not isinstance(self.state, dict):
            raise TypeError(f"self.state must be a dict, not {type(self.state).__name__}")
        self.__stages = [_stage(item) for item in self.stages()]
        if len(self.__stages) not in STAGES:
            raise ValueError(f"stages() must return 3 to 5 stages, not {len(self.__stages)}")
        self.__reached = 0
        return self.__stages[0][0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Words without a call: the end if they are 'done' and every stage has been met."""
        inside = re.fullmatch(r"\s*\\boxed\s*\{(.*)\}\s*", action, re.DOTALL)
        said = (inside[1] if inside else action).strip(" \t\r\n.!\"'").lower()
        if self.__reached < len(self.__stages):
            pending = self.__stages[self.__reached][0]
            return f"This is still to be done: {pending}", 0.0, False, False, {}
        if said == "done":
            return "Thank you.", 1.0, True, False, {}
        return CLOSING, 0.0, False, False, {}

    def get_tools(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's function format, in the order of their definition."""
        tools = []
        for name, method in self.__methods().items():
            derived = parameters(method)
            description, _ = _documentation(method)
            function: dict[str, Any] = {"name": name, "description": description}
            function["parameters"] = self.schemas.get(name, derived)
            tools.append({"type": "function", "function": function})
        return tools

    def execute_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One call: its output, whether it succeeded, and the instructions it brought about.

        A tool refuses by raising ``ValueError``. Whatever it raises becomes an error text, and the
        state is as it was before the call.
        """
        output, ok = self.__run(name, arguments)
        self.history.append({"name": name, "arguments": arguments, "output": output, "ok": ok})
        told = []
        if ok and self.__reached < len(self.__stages) and self.__met(self.__reached):
            self.__reached += 1
            following = [instruction for instruction, _ in self.__stages[self.__reached :]]
            told = [following[0] if following else CLOSING]
        return {"output": output, "ok": ok, "instructions": told}

    def examine(self) -> dict[str, Any]:
        """What the validator may know. The solution is told only before the first call."""
        state = self.__digest()
        criteria: list[bool | str] = []
        for number in range(len(self.__stages)):
            try:
                criteria.append(self.__met(number))
            except Exception as error:
                criteria.append(f"{type(error).__name__}: {error}")
        if self.__digest() != state:
            raise TypeError("a criterion changes the state")
        proven = type(self).solution is not ToolEnv.solution and not self.history
        return {
            "reached": self.__reached,
            "instructions": [instruction for instruction, _ in self.__stages],
            "criteria": criteria,
            "state": state,
            "solution": self.__solved() if proven else None,
            "signatures": {name: parameters(m) for name, m in self.__methods().items()},
        }

    def __methods(self) -> dict[str, Callable[..., Any]]:
        names = [name for kind in reversed(type(self).__mro__) for name in vars(kind)]
        return {
            name.removeprefix(PREFIX): getattr(self, name)
            for name in dict.fromkeys(names)
            if name.startswith(PREFIX) and callable(getattr(self, name))
        }

    def __run(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        methods = self.__methods()
        if name not in methods:
            return f"Error: there is no tool {name}; there are {', '.join(methods)}", False
        before = copy.deepcopy(self.state)
        try:
            given = inspect.signature(methods[name]).bind(**copy.deepcopy(arguments))
            answer = methods[name](*given.args, **given.kwargs)
        except MemoryError:
            raise
        except ValueError as error:
            self.state = before
            return f"Error: {error}", False
        except Exception as error:
            self.state = before
            return f"Error: {type(error).__name__}: {error}", False
        return answer if isinstance(answer, str) else _json(answer), True

    def __met(self, number: int) -> bool:
        return bool(self.__stages[number][1](self.state))

    def __digest(self) -> str:
        text = json.dumps(self.state, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __solved(self) -> list[list[dict[str, Any]]]:
        stages = self.solution()
        if not isinstance(stages, list | tuple) or len(stages) != len(self.__stages):
            raise TypeError(f"solution() must return {len(self.__stages)} lists, one a stage")
        return [[_call(item) for item in calls] for calls in stages]


def parameters(method: Callable[..., Any]) -> dict[str, Any]:
    """JSON Schema of a tool's parameters, from its annotations, defaults and docstring."""
    hints = typing.get_type_hints(method)
    _, described = _documentation(method)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{method.__name__}: parameter {name} cannot be given by name")
        schema = json_type(hints[name]) if name in hints else {}
        if name in described:
            schema = {**schema, "description": described[name]}
        if parameter.default is parameter.empty:
            required.append(name)
        elif type(parameter.default) in JSON_TYPES:
            schema = {**schema, "default": parameter.default}
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}


def json_type(hint: Any) -> dict[str, Any]:
    """JSON Schema of an annotation; {} for what has no JSON type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in JSON_TYPES:
        return {"type": JSON_TYPES[hint]}
    if origin is typing.Literal:
        kinds = {type(value) for value in arguments}
        kind = {"type": JSON_TYPES[kinds.pop()]} if len(kinds) == 1 else {}
        return {**kind, "enum": list(arguments)}
    if hint in (list, dict) or origin in (list, dict):
        if list not in (hint, origin):
            return {"type": "object"}
        return {"type": "array", **({"items": json_type(arguments[0])} if arguments else {})}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [json_type(part) for part in arguments]}
    return {}


def _documentation(method: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's first paragraph, and what its lines 'name: text' say of parameters."""
    text = inspect.getdoc(method) or ""
    lines = re.findall(r"^[ \t]*(\w+)[ \t]*:[ \t]*(\S.*)$", text.partition("\n")[2], re.MULTILINE)
    names = inspect.signature(method).parameters
    summary = " ".join(text.partition("\n\n")[0].split())
    return summary, {name: what for name, what in lines if name in names}


def _stage(item: Any) -> Stage:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TypeError("stages() must return pairs (instruction, criterion)")
    instruction, criterion = item
    if not isinstance(instruction, str) or not instruction.strip() or not callable(criterion):
        raise TypeError("a stage is a text that is not blank and a function of the state")
    return instruction, criterion


def _call(item: Any) -> dict[str, Any]:
    if isinstance(item, dict) and item.keys() == {"name", "arguments"}:
        item = (item["name"], item["arguments"])
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TypeError("a call of solution() is a pair (name, arguments)")
    name, arguments = item
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise TypeError("a call of solution() is a tool's name and a dict of its arguments")
    return {"name": name, "arguments": arguments}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
