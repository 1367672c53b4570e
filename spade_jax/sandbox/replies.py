"""From what a child said to what the host believes: types and ranges of every reply."""

import dataclasses
from collections.abc import Callable
from typing import Any

REWARD_RANGE = 10.0  # a reward beyond it is refused; within, it is clamped to [-1, 1]


class MalformedError(ValueError):
    """A reply of the wrong type or out of range."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """The environment's answer to one action; ``reward`` is finite and within [-1, 1]."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


def nothing(value: Any) -> None:
    """The reply of a request that has no result."""
    if value is not None:
        raise MalformedError(f"an empty reply was due, got {type(value).__name__}")


def text(value: Any) -> str:
    """A str."""
    if type(value) is not str:
        raise MalformedError(f"observation must be str, got {type(value).__name__}")
    return value


def texts(value: Any) -> list[str]:
    """A list of str."""
    if type(value) is not list or not all(type(item) is str for item in value):
        raise MalformedError("solution() must return a list of str")
    return value


def mappings(value: Any) -> list[dict[str, Any]]:
    """A list of dict."""
    if type(value) is not list or not all(type(item) is dict for item in value):
        raise MalformedError("get_tools() must return a list of dict")
    return value


def mapping(value: Any) -> dict[str, Any]:
    """A dict."""
    if type(value) is not dict:
        raise MalformedError(f"a dict was due, got {type(value).__name__}")
    return value


def sequence(length: int) -> Callable[[Any], list[Any]]:
    """A list of 1 to ``length`` values; of none if that is 0."""

    def check(value: Any) -> list[Any]:
        if type(value) is not list or not min(1, length) <= len(value) <= length:
            raise MalformedError(f"1 to {length} values were due")
        return value

    return check


def anything(value: Any) -> Any:
    """Whatever JSON can hold."""
    return value


def step_result(value: Any) -> StepResult:
    """What step() returned: str, number, bool, bool. A bool counts as a number, as in Python."""
    if type(value) is not list or len(value) != 4:
        raise MalformedError(
            "step() must return (observation, reward, terminated, truncated, info)"
        )
    observation, reward, terminated, truncated = value
    if not isinstance(reward, int | float):
        raise MalformedError(f"reward must be a number, got {type(reward).__name__}")
    if not abs(reward) <= REWARD_RANGE:
        raise MalformedError(f"reward {reward!r:.40} is outside [-{REWARD_RANGE}, {REWARD_RANGE}]")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag) is not bool:
            raise MalformedError(f"{name} must be bool, got {type(flag).__name__}")
    reward = min(max(float(reward), -1.0), 1.0)
    return StepResult(text(observation), reward, terminated, truncated)


def episode(steps: int) -> Callable[[Any], tuple[str, list[StepResult]]]:
    """The reply to a play of up to ``steps`` actions."""

    def check(value: Any) -> tuple[str, list[StepResult]]:
        if type(value) is not list or not 1 <= len(value) <= steps + 1:
            raise MalformedError("a play must be an observation and its step results")
        return text(value[0]), [step_result(item) for item in value[1:]]

    return check
