"""The connection of this process to a Ray cluster."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator

import ray

from spade_jax.sandbox.faults import NoHost

CONNECT_SECONDS = 90.0


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
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await _connect(address)
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
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> asyncio.Future[None]:
    """Connects in a thread of its own: Ray may block for long, and in the main thread it would take
    SIGTERM for itself."""
    loop = asyncio.get_running_loop()
    connecting: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if connecting.done():
            return
        if error is None:
            connecting.set_result(None)
        else:
            connecting.set_exception(error)

    def connect() -> None:
        outcome = None
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=connect, daemon=True).start()
    return connecting
