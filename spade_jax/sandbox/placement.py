"""Where environments run: on this machine, or on the nodes of a Ray cluster."""

import contextlib
from collections.abc import AsyncIterator

from spade_jax import config
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.interface import Host


@contextlib.asynccontextmanager
async def environment_host(settings: config.Sandbox) -> AsyncIterator[Host]:
    """The host that ``settings.fleet`` names, running; all its processes end with the context.

    Raises:
      ConfigError: a fleet is asked for and Ray is not installed.
      NoHost: its cluster cannot be reached, or none of its nodes serves.
      HostFault: the sandbox of this machine does not start.
      InsufficientTierError: this machine does not reach ``settings.minimum_tier``.
    """
    async with contextlib.AsyncExitStack() as stack:
        if not settings.fleet:
            yield await stack.enter_async_context(EnvironmentHost(settings))
            return
        try:
            from spade_jax.sandbox import cluster, fleet  # they need an extra

            await stack.enter_async_context(cluster.connected(settings.fleet))
        except ModuleNotFoundError as error:
            raise config.ConfigError(
                f"config.sandbox.fleet: {error.name} is not installed; pip install "
                "'spade-jax[ray]', or leave the setting empty to use this machine"
            ) from error
        yield await stack.enter_async_context(fleet.EnvironmentFleet(settings))
