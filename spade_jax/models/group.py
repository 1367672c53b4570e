"""Processes that make one thing together, such as a folder of weights."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Group(Protocol):
    """The processes, seen from one of them: number ``index`` of ``count``."""

    index: int
    count: int

    def gather(self, what: str, value: Any) -> list[Any]:
        """The values of all, in their order; every process has to come here, or to fail.

        Args:
          what: says in messages what is being done.
          value: what JSON can hold.
        """
        ...

    def fail(self, error: Exception) -> None:
        """Comes here in place of :meth:`gather`, where the others then raise ``error``'s text."""
        ...


class Single:
    """The only process."""

    index, count = 0, 1

    def gather(self, what: str, value: Any) -> list[Any]:
        return [value]

    def fail(self, error: Exception) -> None:
        pass


def in_all(group: Group, what: str, work: Callable[[], T]) -> list[T]:
    """What ``work`` gave in each process. Where it raises in one, all raise, none waits for it."""
    try:
        own = work()
    except Exception as error:
        group.fail(error)
        raise
    return group.gather(what, own)
