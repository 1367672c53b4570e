"""The connection of this process to a Ray cluster."""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import ray

from spade_jax.sandbox.faults import NoHost

CONNECT_SECONDS = 300.0
SILENT_SECONDS = 30.0
"""After which a wait for the cluster is told."""
T = TypeVar("T")
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[None]:
    """Within it this process speaks to the Ray cluster at ``address``, as ``ray.init`` takes it.

    A connection that is there already is used and left.

    Raises:
      NoHost: there is no cluster, or it did not answer within ``CONNECT_SECONDS``.
      ModuleNotFoundError: a part of Ray is not installed.
    """
    if ray.is_initialized():
        yield
        return
    await _connect(address)
    try:
        yield
    finally:
        ray.shutdown()


async def reconnect(address: str) -> bool:
    """Connects again if Ray Client has given up its connection, which it does after half a minute
    without the head; whether it had.

    Raises:
      NoHost, ModuleNotFoundError: as :func:`connected`.
      TimeoutError: the cluster does not answer.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        if await in_thread(ray.is_initialized):
            return False
    ray.shutdown()
    await _connect(address)
    return True


async def _connect(address: str) -> None:
    connect = functools.partial(ray.init, address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        # Also because in the main thread Ray would take SIGTERM for itself.
        async with asyncio.timeout(CONNECT_SECONDS):
            connecting = in_thread(connect)
            if not (await asyncio.wait([connecting], timeout=SILENT_SECONDS))[0]:
                log.warning("waiting for the Ray cluster at %r", address)
            await connecting
    except ModuleNotFoundError:
        raise
    except Exception as error:
        reason = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
        raise NoHost(
            f"config.sandbox.fleet: the Ray cluster at {address!r} cannot be reached: {reason}\n"
            "See on its head, with `ray status`, whether it runs. 'auto' is one that this machine "
            "belongs to; from outside it is ray://HEAD:10001, and both need the same versions of "
            "Ray and Python"
        ) from error


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Result of a call that may block for ever, as Ray's do when a cluster is gone.

    Not ``asyncio.to_thread``, whose threads the end of a program waits for.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(take: Callable[[], None]) -> None:
        if not result.done():
            take()

    def run() -> None:
        try:
            take = functools.partial(result.set_result, function())
        except Exception as error:
            take = functools.partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, take)

    threading.Thread(target=run, daemon=True).start()
    return result
