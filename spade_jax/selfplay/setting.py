"""What differs between the settings: games, whose actions are text, and tools, whose are calls."""

import dataclasses
import random
import typing
from collections.abc import Sequence

from spade_jax import config
from spade_jax.selfplay import prompts
from spade_jax.selfplay.agent import Agent
from spade_jax.selfplay.prompts import Document, Messages, Record
from spade_jax.selfplay.prompts import tools as tool_prompts
from spade_jax.selfplay.tool_agent import ToolAgent


class Prompts(typing.Protocol):
    """What each setting asks the designer and the hint writer."""

    def ideas(self, skill: str, rng: random.Random) -> tuple[str, ...]: ...

    def designer(
        self,
        set_: str,
        *,
        skill: str,
        difficulty: str,
        document: Document | None,
        exemplars: Sequence[Record],
        avoid: Sequence[Record],
        max_turns: int,
        ideas: Sequence[str],
        hint_words: int,
    ) -> Messages: ...

    def hint(self, set_: str, *, skill: str, source: str, words: int) -> Messages: ...


@dataclasses.dataclass(frozen=True)
class Setting:
    """Checks are told apart in :mod:`spade_jax.environments.validation`, by the setting's name."""

    prompts: Prompts
    agent: type[Agent]


SETTINGS = {"games": Setting(prompts, Agent), "tools": Setting(tool_prompts, ToolAgent)}


def setting_of(settings: config.Config) -> Setting:
    """The setting that ``settings`` choose."""
    return SETTINGS[settings.setting]
