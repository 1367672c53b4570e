"""The chain of named checks that decides whether an environment is played."""

import dataclasses
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from spade_jax import config
from spade_jax.environments import checks, tool_checks
from spade_jax.environments.similarity import similarity
from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.instance import HARMLESS
from spade_jax.sandbox.interface import Host

__all__ = ["CHECKS", "HINT", "NAMES", "Check", "Report", "modes", "similarity", "validate"]

SETTINGS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "games": (checks.Trial, checks.ALL),
    "tools": (tool_checks.ToolTrial, tool_checks.ALL),
}
"""Setting -> what is tried and the checks of it, in their order."""
HINT = "hint_keeps_secret"
"""The check of a hint, which is written after the others have passed: it does not contain the
solution. One that fails where this is required costs the environment its hint, not its place."""
CHECKS = {name: tuple(c.__name__ for c in chain) for name, (_, chain) in SETTINGS.items()}
NAMES = (*dict.fromkeys(name for chain in CHECKS.values() for name in chain), HINT)
# What the published system asks of an environment, as far as it concerns the source.
PUBLISHED = ("parses", "constructs", "resets", "types_and_ranges", "criteria_evaluate")
Mode = typing.Literal["required", "scored", "off"]
Status = typing.Literal["passed", "failed", "unproven", "skipped", "off"]


@dataclasses.dataclass(frozen=True)
class Check:
    """Outcome of one check.

    ``status``: 'passed'; 'failed'; 'unproven', where the environment offers no way to tell;
    'skipped', where an earlier failure leaves nothing to ask; or 'off'.
    """

    name: str
    status: Status
    reason: str = ""
    measurements: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Report:
    """All outcomes, in their order.

    Attributes:
      refused: the first required check that has not passed; None = accepted.
    """

    checks: tuple[Check, ...]
    refused: Check | None = None

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Report":
        """Inverse of ``dataclasses.asdict``."""
        refused = row["refused"]
        checks = tuple(Check(**check) for check in row["checks"])
        return cls(checks, Check(**refused) if refused else None)

    @property
    def accepted(self) -> bool:
        return self.refused is None

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    @property
    def reason(self) -> str:
        """What keeps the environment out, for logs; empty if nothing was found wrong."""
        wrong = [check for check in self.checks if check.status in ("failed", "unproven")]
        return "; ".join(f"{check.name}: {check.reason}" for check in wrong)


def modes(settings: config.Validation) -> dict[str, Mode]:
    """What to do with each of ``NAMES``: the preset, then the names that settings list.

    Raises:
      ConfigError: a listed check does not exist, is listed twice, or cannot be switched off.
    """
    found: dict[str, Mode] = {
        name: "required" if settings.preset == "full" or name in PUBLISHED else "off"
        for name in NAMES
    }
    seen: set[str] = set()
    for mode in typing.get_args(Mode):
        for name in getattr(settings, mode):
            if name not in NAMES:
                raise config.ConfigError(
                    f"config.validation.{mode}: no check named {name}; there are {', '.join(NAMES)}"
                )
            if name in seen:
                raise config.ConfigError(f"config.validation.{mode}: {name} is listed twice")
            if mode == "off" and name in checks.FOUNDATIONS:
                raise config.ConfigError(
                    f"config.validation.off: without {name} no other check can run; list it in "
                    "config.validation.scored"
                )
            seen.add(name)
            found[name] = mode
    return found


async def validate(
    host: Host,
    source: str,
    settings: config.Validation,
    others: Sequence[str] = (),
    max_turns: int = 25,
    setting: str = "games",
) -> Report:
    """Runs every check of the setting that is not off on a source.

    Args:
      host: where the environment runs.
      settings: numbers of the checks, and which of them refuse an environment.
      others: sources of which it must not be a near-duplicate.
      max_turns: turns that an episode of the run has.
      setting: a key of ``SETTINGS``.

    Raises:
      HostFault: the sandbox failed; nothing is known of the environment.
      ConfigError: as :func:`modes`.
    """
    wanted = modes(settings)
    kind, chain = SETTINGS[setting]
    trial = kind(host, source, settings, max_turns, others)
    outcomes: list[Check] = []
    blocked = ""
    try:
        for check in chain:
            if wanted[check.__name__] == "off":
                outcomes.append(Check(check.__name__, "off"))
            elif blocked:
                outcomes.append(Check(check.__name__, "skipped", blocked))
            else:
                outcome, blocked = await _run(check, trial)
                outcomes.append(outcome)
    finally:
        await trial.close()
    refusing = [
        item for item in outcomes if wanted[item.name] == "required" and item.status != "passed"
    ]
    return Report(tuple(outcomes), refusing[0] if refusing else None)


async def _run(
    check: Callable[[Any], Awaitable[checks.Measurements]], trial: checks.Trial
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
