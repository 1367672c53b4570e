"""Has a policy try what is left of a benchmark's items, some at a time."""

import asyncio
import hashlib
import itertools
import typing
from collections.abc import Callable, Sequence

from spade_jax.benchmarks.interface import Benchmark, Broken, Item, Outcome, Policy


class Progress(typing.Protocol):
    """Told of every item that is done."""

    def advance(self) -> None: ...


def choose(items: Sequence[Item], limit: int) -> list[Item]:
    """``limit`` of the items, spread over the columns; all of them if it is 0.

    The choice is a function of the items' names, and a larger one holds the smaller ones.
    """
    if not limit or limit >= len(items):
        return list(items)
    columns: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: hashlib.sha256(item.name.encode()).digest()):
        columns.setdefault(item.column, []).append(item)
    rounds = itertools.zip_longest(*(columns[name] for name in sorted(columns)))
    chosen = [item for item in itertools.chain(*rounds) if item is not None]
    return chosen[:limit]


async def run(
    benchmark: Benchmark,
    items: Sequence[Item],
    policy: Policy,
    jobs: int,
    record: Callable[[Outcome], None],
    progress: Progress,
) -> None:
    """Tries the items, ``jobs`` at a time, and records each as it ends.

    Whatever an attempt raises is the loss of its item, but :class:`Broken`.

    Raises:
      Broken: the policy answers nobody any more.
    """
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            try:
                outcome = await benchmark.attempt(item, policy)
            except Broken:
                raise
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
                outcome = Outcome(item.name, item.column, 0.0, "not judged", fault, {})
            record(outcome)
            progress.advance()

    try:
        async with benchmark, asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(items))):
                group.create_task(work())
    except* Broken as broken:
        raise broken.exceptions[0] from None
