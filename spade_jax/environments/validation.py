"""The chain of named checks that decides whether an environment is played."""

import dataclasses
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from spade_jax import config
from spade_jax.environments import checks
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.instance import HARMLESS

__all__ = ["CHECKS", "Check", "Report", "similarity", "validate"]

CHECKS = tuple(check.__name__ for check in checks.ALL)
Status = typing.Literal["passed", "failed", "unproven", "skipped"]


@dataclasses.dataclass(frozen=True)
class Check:
    """Outcome of one check.

    ``status``: 'passed'; 'failed'; 'unproven', where the environment offers no way to tell; or
    'skipped', where an earlier failure leaves nothing to ask.
    """

    name: str
    status: Status
    reason: str = ""
    measurements: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Report:
    """All outcomes, in the order of ``CHECKS``. ``accepted``: every required check has passed."""

    accepted: bool
    checks: tuple[Check, ...]

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    @property
    def reason(self) -> str:
        """What keeps the environment out, for logs; empty if nothing was found wrong."""
        wrong = [check for check in self.checks if check.status in ("failed", "unproven")]
        return "; ".join(f"{check.name}: {check.reason}" for check in wrong)


def require_known(settings: config.Validation) -> None:
    """Raises ConfigError if ``settings.required`` names a check that does not exist."""
    unknown = set(settings.required) - set(CHECKS)
    if unknown:
        raise config.ConfigError(
            f"config.validation.required: no check named {', '.join(sorted(unknown))}; there are "
            f"{', '.join(CHECKS)}"
        )


async def validate(
    host: EnvironmentHost,
    source: str,
    settings: config.Validation,
    others: Sequence[str] = (),
    max_turns: int = 25,
) -> Report:
    """Runs every check of ``CHECKS`` on a source.

    Args:
      host: where the environment runs.
      settings: numbers of the checks, and which of them refuse an environment.
      others: sources of which it must not be a near-duplicate.
      max_turns: turns that an episode of the run has.

    Raises:
      HostFault: the sandbox failed; nothing is known of the environment.
      ConfigError: ``settings.required`` names a check that does not exist.
    """
    require_known(settings)
    required = settings.required or CHECKS
    trial = checks.Trial(host, source, settings, max_turns, others)
    outcomes: list[Check] = []
    blocked = ""
    try:
        for check in checks.ALL:
            if blocked:
                outcomes.append(Check(check.__name__, "skipped", blocked))
                continue
            outcome, blocked = await _run(check, trial)
            outcomes.append(outcome)
    finally:
        await trial.close()
    accepted = all(item.status == "passed" for item in outcomes if item.name in required)
    return Report(accepted, tuple(outcomes))


async def _run(
    check: Callable[[checks.Trial], Awaitable[checks.Measurements]], trial: checks.Trial
) -> tuple[Check, str]:
    """The outcome, and why no later check can run, if none can."""
    name = check.__name__
    blocked = f"{name} failed"
    try:
        return Check(name, "passed", measurements=await check(trial)), ""
    except checks.Unproven as error:
        return Check(name, "unproven", str(error)), ""
    except checks.Failed as error:
        return Check(name, "failed", str(error)), blocked if name in checks.FOUNDATIONS else ""
    except EnvironmentFault as fault:
        await trial.close()
        broken = fault.kind not in HARMLESS or name in checks.FOUNDATIONS
        measurements = {"fault": fault.kind}
        return Check(name, "failed", str(fault), measurements), blocked if broken else ""
