r"""The tool contract: what an environment must be whose actions are function calls.

One Python module, standard library only, that defines exactly one subclass of ``ToolEnv``, which is
a builtin in the sandbox (``from tool_env import ToolEnv`` works too); its name ends in ``Env``::

    class ReturnsEnv(ToolEnv):
        def setup(self, rng): ...        # fills self.state, a dict that JSON can hold
        def stages(self): ...            # -> list of 3 to 5 pairs (instruction, criterion)
        def tool_find_order(self, customer: str): ...
        def tool_refund(self, order: int, reason: Literal["damaged", "late"]): ...
        def solution(self): ...          # -> for each stage, a list of pairs (name, arguments)

``setup(rng)``
    The instance that belongs to a seed. Everything random comes from ``rng``.
``stages()``
    What the user asks for, in order, each instruction with its criterion: a function of the state
    that is true once the instruction has been carried out, and false before. An instruction is
    revealed when the criterion before it has become true; one call completes one stage at most.
``tool_NAME(self, ...)``
    A tool. Its OpenAI function schema comes from annotations (``Literal`` gives an enum), defaults
    and docstring (first paragraph; lines ``parameter: meaning``). A class attribute ``schemas``
    (tool -> JSON Schema of the parameters, draft 2020-12) overrides single ones and must then agree
    with the method. What is returned is shown to the agent, as JSON unless it is a str. A tool
    refuses with ``raise ValueError(text)``; a call that raises leaves the state as it was.
``solution()``
    The calls that meet each stage of the episode begun by the last reset. Only the validator sees
    them. A solution takes no value that the agent could not have read in an instruction or in what
    an earlier call returned.

The base class reveals, advances, counts and scores; ``self.history`` holds the calls so far. The
return is 1 if every stage has been met and the agent then says so with ``\boxed{done}``, else 0.
``examples/tools/`` holds three environments to copy from.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonschema
import referencing

from spade_jax.environments.calls import Call, Schemas
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.tool_env import ToolEnv

__all__ = [
    "Answer",
    "Examination",
    "ToolEnv",
    "Toolbox",
    "answer",
    "answers",
    "examination",
    "examples",
]

DONE = "\\boxed{done}"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Keys go into the prompt as they are, so none may hold a control token.
KEY = re.compile(r"[A-Za-z0-9_$-]{1,64}")
KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "enum",
        "const",
        "items",
        "description",
        "default",
        "title",
        "examples",
        "anyOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "additionalProperties",
        "format",
    }
)
"""What a schema may say. Left out is what could hang or leave this process: pattern and $ref."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a call brought: its output, and the instructions revealed by it."""

    output: str
    ok: bool
    instructions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Examination:
    """What the validator sees of an instance.

    Attributes:
      reached: stages met so far.
      criteria: of each criterion its value now, or the error that it raised.
      state: digest of the state.
      solution: for each stage its calls; None where there is no solution or a call has been made.
      signatures: tool -> parameters as its method has them.
    """

    reached: int
    instructions: tuple[str, ...]
    criteria: tuple[bool | str, ...]
    state: str
    solution: tuple[tuple[Call, ...], ...] | None
    signatures: Schemas


def answer(value: Any) -> Answer:
    """What the host's ``call`` returned, believed.

    Raises:
      EnvironmentFault: it has not the form that ``ToolEnv`` gives.
    """
    match value:
        case {"output": str(output), "ok": bool(ok), "instructions": list(told)} if all(
            isinstance(text, str) for text in told
        ):
            return Answer(output, ok, tuple(told))
    raise EnvironmentFault("malformed", "execute_tool() is not that of ToolEnv")


def answers(values: Sequence[Any]) -> list[Answer]:
    """As :func:`answer`, of several calls."""
    return [answer(value) for value in values]


def examination(value: Mapping[str, Any]) -> Examination:
    """What the host's ``examine`` returned, believed.

    Raises:
      EnvironmentFault: it has not the form that ``ToolEnv`` gives.
    """
    try:
        solution = value["solution"]
        stages = solution and tuple(
            tuple(Call(str(call["name"]), dict(call["arguments"])) for call in calls)
            for calls in solution
        )
        return Examination(
            int(value["reached"]),
            tuple(map(str, value["instructions"])),
            tuple(item if isinstance(item, bool) else str(item) for item in value["criteria"]),
            str(value["state"]),
            stages,
            dict(value["signatures"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EnvironmentFault("malformed", "examine() is not that of ToolEnv") from error


class Toolbox:
    """The tools of an environment: what is offered to the agent, and what a call must satisfy.

    Raises:
      EnvironmentFault: they are not in OpenAI's function format, or a key in them is no plain word.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]]):
        self.tools = list(tools)
        self.schemas: dict[str, Mapping[str, Any]] = {}
        for tool in self.tools:
            match tool:
                case {
                    "type": "function",
                    "function": {
                        "name": str(name),
                        "description": str(),
                        "parameters": dict(parameters),
                    },
                } if NAME.fullmatch(name) and name not in self.schemas:
                    self.schemas[name] = parameters
                case _:
                    raise EnvironmentFault("malformed", f"no description of a tool: {tool!r:.100}")
            if odd := [key for key in _keys(tool) if not KEY.fullmatch(key)]:
                raise EnvironmentFault("malformed", f"tool {name}: the key {odd[0]!r:.60} is odd")

    def wrong(self, call: Call) -> str:
        """What is wrong with a call, for the agent; '' if it may be made.

        Raises:
          EnvironmentFault: the tool's schema is none.
        """
        if call.name not in self.schemas:
            return f"there is no tool {call.name}; there are {', '.join(self.schemas)}"
        schema = self.schemas[call.name]
        if problem := schema_problem(schema):
            raise EnvironmentFault("malformed", f"schema of tool {call.name}: {problem}")
        unknown = call.arguments.keys() - schema.get("properties", {}).keys()
        if unknown and not schema.get("additionalProperties", False):
            return f"{call.name} has no parameter {', '.join(sorted(unknown))}"
        errors = sorted(_validator(schema).iter_errors(call.arguments), key=lambda e: e.json_path)
        return "; ".join(f"{error.json_path}: {error.message}" for error in errors)[:500]


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Why a schema cannot describe the parameters of a tool; '' if it can."""
    if unknown := sorted(set(_keywords(schema)) - KEYWORDS):
        return f"{', '.join(unknown)} cannot be used"
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"{error.json_path}: {error.message}"[:300]
    if schema.get("type") != "object":
        return "its type must be object"
    return ""


def disagreement(stated: Mapping[str, Any], derived: Mapping[str, Any]) -> str:
    """Where a tool's schema and its method's signature differ; '' if they agree."""
    ours, theirs = stated.get("properties", {}), derived["properties"]
    if odd := sorted(ours.keys() ^ theirs.keys()):
        return f"{', '.join(odd)} is not in both the schema and the method"
    if set(stated.get("required", [])) != set(derived["required"]):
        return "required parameters are not those without a default"
    for name, schema in ours.items():
        both = schema.get("type"), theirs[name].get("type")
        if all(both) and both[0] != both[1]:
            return f"{name} is {both[0]} in the schema and {both[1]} in the method"
    return ""


def examples() -> dict[str, str]:
    """Name -> source of the worked examples."""
    folder = pathlib.Path(__file__).parent / "examples" / "tools"
    return {path.stem: path.read_text() for path in sorted(folder.glob("[a-z]*.py"))}


def _validator(schema: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
    # An empty registry, so that nothing is ever fetched.
    return jsonschema.Draft202012Validator(schema, registry=referencing.Registry())


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    items = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for item in items:
            yield from _keys(item)


def _keywords(schema: Any) -> Iterator[str]:
    """Keywords of a schema and of the schemas inside it."""
    if not isinstance(schema, dict):
        return
    yield from schema
    properties = schema.get("properties")
    inside = list(properties.values()) if isinstance(properties, dict) else []
    any_of = schema.get("anyOf")
    inside += any_of if isinstance(any_of, list) else []
    for part in (*inside, schema.get("items"), schema.get("additionalProperties")):
        yield from _keywords(part)
