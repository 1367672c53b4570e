"""What runs on each node of a fleet: one environment host, asked in JSON."""

import dataclasses
import json
import typing
from collections.abc import Sequence
from typing import Any

from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.limits import InsufficientTierError

if typing.TYPE_CHECKING:
    from spade_jax import config

Outcome = Sequence[Any]
"""('value', result), ('environment', kind, reason, output) or ('host', reason)."""


class HostActor:
    """One :class:`EnvironmentHost`. Faults travel as values: Ray would wrap exceptions."""

    def __init__(self, settings: "config.Sandbox"):
        self._host = EnvironmentHost(settings)

    async def start(self) -> tuple[dict[str, str], str]:
        """Starts the zygote: what its self-test found, or else why it cannot run here."""
        try:
            await self._host.__aenter__()
        except (HostFault, InsufficientTierError) as error:
            return {}, str(error)
        return dict(self._host.report.layers), ""

    async def ask(self, request: str) -> str:
        """The outcome of a call, both as JSON."""
        method, *arguments = json.loads(request)
        outcome: Outcome
        try:
            outcome = "value", await getattr(self._host, method)(*arguments)
        except EnvironmentFault as fault:
            outcome = "environment", fault.kind, fault.reason, fault.output
        except HostFault as fault:
            outcome = "host", str(fault)
        return json.dumps(outcome, default=dataclasses.astuple)

    async def stop(self) -> None:
        """Ends all processes of the host."""
        await self._host.aclose()
