"""What every sandbox test leaves behind: nothing."""

import asyncio

import pytest
from sandbox_helpers import PATIENT, descendants, descriptors

from spade_jax import config
from spade_jax.sandbox.host import EnvironmentHost


@pytest.fixture
def sandboxed():
    """Runs a coroutine function over a host; afterwards no process or descriptor is left."""

    def run(body, **settings):
        before = descriptors(), descendants()

        async def main():
            async with EnvironmentHost(config.Sandbox(**PATIENT | settings)) as host:
                await body(host)

        asyncio.run(main())
        assert (descriptors(), descendants()) == before

    return run
