"""The loop that runs one environment, inside its own confined process.

This is the only place in the package where foreign code is compiled or executed. Nothing here
protects anyone: the code below shares its process with the environment and may be rewritten by
it. What counts is checked by the host.
"""

import io
import os
import random
import sys
import types
from typing import Any

from spade_jax.sandbox import prelude, wire

MODULE = "environment"
NOT_ENVIRONMENTS = ("Env", "ToolEnv", "ToolUseBaseEnv")
REASON_LENGTH = 500
BLOCK_SIZES = range(48, 129, 16)  # of pymalloc; instances of plain classes are among them
OUT_OF_MEMORY = wire.encode(["fault", "memory", "MemoryError"], 1024)


class Printed(io.FileIO):
    """Standard output: what its pipe has no room for is forgotten."""

    def write(self, data: Any) -> int:
        """Claims to have written all of it."""
        super().write(data)
        return len(data)


def keep_output() -> None:
    """What is printed goes to the first descriptor at once, errors too, and never fails."""
    sys.stdout = sys.stderr = io.TextIOWrapper(
        Printed(1, "w", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )


class Fault(Exception):
    """What the child answers instead of a value."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Instance:
    """The environment object and what may be asked of it; each method is one request."""

    def __init__(self) -> None:
        self._environment: Any = None

    def open(self, source: str, max_turns: int | None) -> None:
        """Runs the module and constructs its environment."""
        module = types.ModuleType(MODULE)
        sys.modules[MODULE] = module
        module.__dict__["__builtins__"] = prelude.BUILTINS
        random.seed(0)
        try:
            code = compile(source, f"<{MODULE}>", "exec")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise Fault("syntax", describe(error)) from error
        exec(code, module.__dict__)
        self._environment = construct(find_class(module), max_turns)

    def reset(self, seed: int) -> str:
        """The first observation."""
        random.seed(seed)
        answer = self._environment.reset(seed=seed)
        observation = answer[0] if isinstance(answer, tuple) and len(answer) == 2 else answer
        if not isinstance(observation, str):
            raise Fault(
                "malformed", f"reset() must return (str, dict), got {type(answer).__name__}"
            )
        return observation

    def step(self, action: str) -> list[Any]:
        """Observation, reward, terminated, truncated. ``info`` never leaves the child."""
        answer = self._environment.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise Fault("malformed", "step() must return a tuple of 5 values")
        return list(answer[:4])

    def play(self, seed: int, actions: list[str], room: int) -> list[Any]:
        """A reset and steps up to the end of the episode: the observation, then step results.

        Stops early when the results fill ``room`` bytes.
        """
        results: list[Any] = [self.reset(seed)]
        for action in actions:
            result = self.step(action)
            room -= len(wire.encode(result, room))
            if room < 0:
                break
            results.append(result)
            if result[2] is True or result[3] is True:
                break
        return results

    def solution(self) -> list[str]:
        """The actions that win after the last reset."""
        solve = getattr(self._environment, "solution", None)
        if not callable(solve):
            raise Fault("missing", "the environment has no solution()")
        actions = solve()
        if not isinstance(actions, list) or not all(isinstance(each, str) for each in actions):
            raise Fault("missing", "solution() does not return a list of str")
        return actions

    def tools(self) -> Any:
        """Descriptions of the tools, for environments that have some."""
        get = getattr(self._environment, "get_tools", None)
        return get() if callable(get) else []

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The outcome of one tool call."""
        run = getattr(self._environment, "execute_tool", None)
        if not callable(run):
            raise Fault("missing", "the environment has no execute_tool()")
        return run(name, arguments)

    def calls(self, calls: list[list[Any]], room: int) -> list[Any]:
        """The outcomes of tool calls made one after the other.

        Stops early once the outcomes fill ``room`` bytes.
        """
        outcomes: list[Any] = []
        for name, arguments in calls:
            outcomes.append(self.call(name, arguments))
            room -= len(wire.encode(outcomes[-1], sys.maxsize))
            if room < 0:
                break
        return outcomes

    def examine(self) -> Any:
        """What the validator may know of a tool environment."""
        look = getattr(self._environment, "examine", None)
        if not callable(look):
            raise Fault("missing", "the environment is no ToolEnv")
        return look()


def find_class(module: types.ModuleType) -> type:
    """The first class of the module whose name ends in Env."""
    for name, value in module.__dict__.items():
        if isinstance(value, type) and name.endswith("Env") and name not in NOT_ENVIRONMENTS:
            return value
    raise Fault("missing", "the module defines no class whose name ends in Env")


def construct(kind: type, max_turns: int | None) -> Any:
    """The environment, its own turn limit lowered to ``max_turns`` where it has a larger one."""
    environment = kind()
    own = getattr(environment, "max_turns", None)
    if max_turns is not None and type(own) is int:
        environment.max_turns = min(own, max_turns)
    return environment


def describe(error: BaseException) -> str:
    """Type, message and, where known, line in the environment's source."""
    try:
        text = f"{type(error).__name__}: {error}"
        line = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == f"<{MODULE}>":
                line = trace.tb_lineno
            trace = trace.tb_next
        if line is not None:
            text = f"line {line}: {text}"
    except BaseException:
        text = "an exception that cannot be printed"
    return text[:REASON_LENGTH].encode("utf-8", "replace").decode()


def answer(instance: Instance, request: list[Any], limit: int) -> bytes:
    """The framed reply to one request: ['ok', value] or ['fault', kind, reason]."""
    try:
        value = getattr(instance, request[0])(*request[1:])
        return wire.encode(["ok", value], limit)
    except Fault as fault:
        reply = ["fault", fault.kind, fault.reason]
    except MemoryError:
        return OUT_OF_MEMORY
    except wire.OversizedError as error:
        reply = ["fault", "too_large", str(error)]
    except wire.WireError as error:
        reply = ["fault", "malformed", describe(error)]
    except BaseException as error:
        reply = ["fault", "raised", describe(error)]
    return wire.encode(reply, limit)


def shift_addresses() -> list[object]:
    """Takes a random number of small blocks of each size, to be kept while the child lives.

    An environment whose play depends on addresses, as in the order of a set of objects, then
    differs from one child to the next, and validation sees it.
    """
    high, low, *counts = os.urandom(2 + len(BLOCK_SIZES))
    empty = sys.getsizeof(b"")
    blocks: list[object] = [object() for _ in range((high << 8 | low) % 4096)]
    for size, count in zip(BLOCK_SIZES, counts, strict=True):
        blocks += [bytes(size - empty) for _ in range(count % 64)]
    return blocks


def serve(descriptor: int, limit: int) -> None:
    """Answers requests until the host closes its end."""
    ballast = shift_addresses()
    instance = Instance()
    decoder = wire.Decoder(limit)
    while piece := os.read(descriptor, 65536):
        request = decoder.feed(piece)
        if request is not None:
            reply = answer(instance, request[0], limit)
            while reply:
                reply = reply[os.write(descriptor, reply) :]
    del ballast
