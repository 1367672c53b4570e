"""Procedural tasks: a question made for a level and a seed, one answer, right or wrong.

A module of tasks defines objects with the methods of :class:`Task` and ends in

    if __name__ == "__main__":
        tasks.serve([MyTask(), ...])

``config.tasks.module`` names it. It runs in worker processes (``sandbox/worker.py``) and nowhere
else, and needs nothing of this package but :func:`serve`; :class:`TaskHost` gives its tasks to the
agent as environments of one turn. ``reasoning_gym.py`` is such a module.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from spade_jax.environments import parsing
from spade_jax.sandbox import worker
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.interface import StepResult
from spade_jax.sandbox.workers import Fault, Workers

TRIES = 10  # seeds after each other, where a generator gives up on one
DEADLINE = 120.0  # seconds of one problem or judgement, among them a worker's start


class Task(Protocol):
    """A generator of questions of every level, and their judge.

    Attributes:
      name: unique in the module.
    """

    name: str

    def problem(self, level: int, seed: int) -> tuple[str, Any]:
        """The question, and what :meth:`right` needs of it, as JSON can hold it.

        A function of its arguments alone. ``level`` is 0 for the easiest. It may raise: then
        the next seed is tried.
        """
        ...

    def right(self, answer: str, truth: Any) -> bool:
        """Whether an answer is fully correct. What raises is wrong."""
        ...


def serve(tasks: Sequence[Task]) -> None:
    """Answers the requests of a :class:`TaskHost`, in a worker process."""
    worker.serve(functions({task.name: task for task in tasks}))


def functions(tasks: Mapping[str, Task]) -> dict[str, Callable[..., Any]]:
    """The requests that a module of tasks answers."""

    def names() -> list[str]:
        return list(tasks)

    def problem(name: str, level: int, seed: int) -> tuple[str, Any]:
        for tried in range(TRIES):
            try:
                return tasks[name].problem(level, seed + tried)
            except Exception:
                if tried == TRIES - 1:
                    raise
        raise AssertionError

    def right(name: str, answer: str, truth: Any) -> bool:
        try:
            return bool(tasks[name].right(answer, truth))
        except Exception:
            return False

    return {"names": names, "problem": problem, "right": right}


@dataclasses.dataclass(frozen=True)
class Spec:
    """What stands in the place of an environment's source: a task and a level."""

    task: str
    level: int

    def source(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def of(cls, source: str) -> "Spec":
        return cls(**json.loads(source))


@dataclasses.dataclass
class _Open:
    spec: Spec
    truth: Any = None
    done: bool = True


class TaskHost:
    """A :class:`~spade_jax.sandbox.interface.Host` whose environments are tasks, of one turn each.

    An asynchronous context manager: leaving it ends the worker processes.

    Args:
      module: of tasks; run as ``python -m module``.
      count: worker processes, each started when it is first needed; 0 = one a core.
    """

    def __init__(self, module: str, count: int = 0):
        self._module = module
        self._workers = Workers(module, count, DEADLINE)
        self._open: dict[int, _Open] = {}
        self._opened = 0

    async def __aenter__(self) -> "TaskHost":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.aclose()

    @property
    def report(self) -> str:
        return f"tasks of {self._module}, in confined worker processes"

    async def names(self) -> list[str]:
        """The module's tasks, in its order.

        Raises:
          HostFault: it does not run.
        """
        try:
            return await self._workers.run("names")
        except Fault as fault:
            raise HostFault(
                f"config.tasks.module: {self._module!r} does not answer ({fault}); does "
                f"`python -m {self._module}` start, and end in tasks.serve([...])?"
            ) from fault

    async def open(self, source: str, max_turns: int | None = None, folder: bool = False) -> int:
        """See :meth:`Host.open`; ``source`` is that of a :class:`Spec`."""
        self._opened += 1
        self._open[self._opened] = _Open(Spec.of(source))
        return self._opened

    async def reset(self, handle: int, seed: int) -> str:
        """See :meth:`Host.reset`; the first observation is the question."""
        instance = self._open[handle]
        spec = instance.spec
        question, instance.truth = await self._ask("problem", spec.task, spec.level, seed)
        instance.done = False
        return question

    async def step(self, handle: int, action: str) -> StepResult:
        """See :meth:`Host.step`; the only action is the answer, in a box."""
        instance = self._open[handle]
        if instance.done:
            raise EnvironmentFault("malformed", "a task has one turn")
        instance.done = True
        answer = parsing.box_content(action)
        if answer is None:
            return StepResult("", 0.0, True, False)
        right = await self._ask("right", instance.spec.task, answer, instance.truth)
        return StepResult("", float(right), True, False)

    async def play(
        self, handle: int, seed: int, actions: Sequence[str]
    ) -> tuple[str, list[StepResult]]:
        """See :meth:`Host.play`."""
        observation = await self.reset(handle, seed)
        return observation, [await self.step(handle, action) for action in actions[:1]]

    async def solution(self, handle: int) -> list[str]:
        raise _missing("solution")

    async def tools(self, handle: int) -> list[dict[str, Any]]:
        return []

    async def call(self, handle: int, name: str, arguments: Mapping[str, Any]) -> Any:
        raise _missing("call")

    async def calls(self, handle: int, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        raise _missing("calls")

    async def examine(self, handle: int) -> dict[str, Any]:
        raise _missing("examine")

    async def output(self, handle: int) -> str:
        return ""

    async def close(self, handle: int) -> None:
        self._open.pop(handle, None)

    async def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return await self._workers.run(name, *arguments)
        except Fault as fault:
            raise EnvironmentFault("raised", str(fault)) from fault


def _missing(name: str) -> EnvironmentFault:
    return EnvironmentFault("missing", f"tasks have no {name}()")
