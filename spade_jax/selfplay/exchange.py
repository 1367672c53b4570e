"""Several processes, one run: work is dealt by index, and what each did is told to all.

Every process goes through the same steps with the same state. Where there is work to share out,
each takes its own items, and an all-gather makes the results of all known everywhere.
"""

import typing
from collections.abc import Sequence
from typing import Any

T = typing.TypeVar("T")


class Exchange(typing.Protocol):
    """The processes of a run, seen from one of them: number ``index`` of ``count``."""

    index: int
    count: int

    async def all_gather(self, what: str, value: Any) -> list[Any]:
        """The values of all processes, in their order; every process has to come here.

        Args:
          what: says in messages what is being exchanged.
          value: what JSON can hold.

        Raises:
          asyncio.CancelledError: a process was told to stop; all of them get this at the same
            exchange.
        """
        ...

    async def stop(self) -> None:
        """Has all processes stop at this exchange, if that is not what they just did."""
        ...

    def leave(self) -> None:
        """From here on nothing is exchanged: who comes is cancelled. :meth:`fail` follows."""
        ...

    def fail(self, error: Exception) -> None:
        """Tells the others, who wait for nothing any more, that this process ends and why."""
        ...


class Alone:
    """The only process."""

    index, count = 0, 1

    async def all_gather(self, what: str, value: Any) -> list[Any]:
        return [value]

    async def stop(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def fail(self, error: Exception) -> None:
        pass


def dealt(items: Sequence[T], exchange: Exchange) -> list[T]:
    """The items that are this process's to work on; none, where there are too few."""
    return list(items[exchange.index :: exchange.count])


async def all_results(exchange: Exchange, what: str, own: Sequence[Any]) -> list[Any]:
    """Results of all items in their order, out of every process's results of :func:`dealt` ones."""
    shares = await exchange.all_gather(what, list(own))
    total = sum(map(len, shares))
    return [shares[i % exchange.count][i // exchange.count] for i in range(total)]
