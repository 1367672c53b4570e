"""What the rest of the system knows of where environments run: opened, played, closed by number."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spade_jax.sandbox.replies import StepResult

__all__ = ["Host", "StepResult"]


class Host(Protocol):
    """Runs model-written environments, each instance in a confined process of its own.

    :class:`~spade_jax.sandbox.host.EnvironmentHost` does so on this machine,
    :class:`~spade_jax.sandbox.fleet.EnvironmentFleet` on the nodes of a Ray cluster, with the same
    results; ``placement.environment_host`` gives the one that a config names. Calls on different
    instances run at once; calls on one instance must follow each other.

    Every method raises:
      EnvironmentFault: the environment misbehaved. After kind 'raised' or 'missing' the instance
        still answers; after any other it repeats the fault.
      HostFault: the sandbox itself failed.
    """

    @property
    def report(self) -> object:
        """What the self-test found; as a str, the tier and how to get what is missing."""
        ...

    async def open(self, source: str, max_turns: int | None = None, folder: bool = False) -> int:
        """Loads the source in a process of its own and constructs its environment.

        Waits while ``settings.instances`` are open. With ``max_turns`` the environment's own limit
        is lowered to it, and the host truncates the episode there by its own count. With ``folder``
        it works in an empty folder of its own of ``settings.folder_mb``, gone with the process.

        Returns:
          the handle that the other methods take; release it with :meth:`close`.
        """
        ...

    async def reset(self, handle: int, seed: int) -> str:
        """Starts an episode; the first observation."""
        ...

    async def step(self, handle: int, action: str) -> StepResult:
        """Plays one action; a longer one is cut at ``host.ACTION_CHARACTERS``."""
        ...

    async def play(
        self, handle: int, seed: int, actions: Sequence[str]
    ) -> tuple[str, list[StepResult]]:
        """A reset and as many of ``actions`` as the episode lasts, in one message.

        For validation: the host adds no truncation of its own. An episode whose observations do
        not fit a message is cut where they end to fit.

        Returns:
          the first observation, and the result of each action played.
        """
        ...

    async def solution(self, handle: int) -> list[str]:
        """Actions that win after the last reset, by the environment's own account.

        Raises:
          EnvironmentFault: kind 'missing' where the environment offers no such list.
        """
        ...

    async def tools(self, handle: int) -> list[dict[str, Any]]:
        """Tool descriptions; empty for an environment without tools."""
        ...

    async def call(self, handle: int, name: str, arguments: Mapping[str, Any]) -> Any:
        """Runs a tool; whatever JSON value it answers."""
        ...

    async def calls(self, handle: int, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        """Runs tools one after the other, in one message; their answers, as of :meth:`call`.

        For validation. Calls whose answers would not fit a message are not made: the list is then
        shorter, but never empty.
        """
        ...

    async def examine(self, handle: int) -> dict[str, Any]:
        """What the validator may know of a tool environment (``ToolEnv.examine``)."""
        ...

    async def output(self, handle: int) -> str:
        """What the environment has printed, to standard output and error; the beginning is kept."""
        ...

    async def close(self, handle: int) -> None:
        """Kills and reaps the instance's process. A handle closed before is ignored."""
        ...
