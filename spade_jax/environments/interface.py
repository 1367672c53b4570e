r"""The game contract: what an environment must be, for models and people who write one.

An environment is one Python module that needs nothing but the standard library. It defines exactly
one class whose name ends in ``Env``::

    class DoorEnv:
        def __init__(self, max_turns=8): ...
        def reset(self, seed=None): ...  # -> (observation, info)
        def step(self, action): ...      # -> (observation, reward, terminated, truncated, info)
        def solution(self): ...          # -> list of actions

``__init__``
    Every argument has a default. An integer attribute ``max_turns`` is lowered to the run's own
    limit where it is larger.
``reset(seed=None)``
    Starts the episode that belongs to ``seed`` and returns the first observation, a str that is
    not empty and tells the whole task, and a dict. Everything random comes from ``seed``: either
    from ``random.Random(seed)`` or from the module ``random``, which is seeded with it before each
    reset. The same seed and actions always give the same episode.
``step(action)``
    ``action`` is a str: ``\boxed{content}`` with what the agent put into its last box, or the
    agent's whole message if it had none. :func:`content` shows how to take it apart. Anything may
    arrive; a bad action is answered with a reminder of the form, reward 0, and the game goes on.
    Returns the observation (str), the reward (int or float), ``terminated`` (bool: won or lost),
    ``truncated`` (bool: out of turns) and a dict, which nobody sees.
    The return of an episode is the reward of the step that terminates it: 1.0 for a win, 0.0 for a
    loss, between for part of a goal. Rewards of other steps, and of truncated episodes, do not
    count.
``solution()``
    The list of actions (contents of boxes) that wins the episode begun by the last reset. It is
    asked for by the validator, right after a reset, and never shown to the agent.

The beginning of what the environment prints is kept, for people only; files, network, processes
and threads are out of reach. The modules of :mod:`spade_jax.sandbox.prelude` can be imported, and
its common names are builtins: they need no import. ``examples/`` holds three environments to copy
from, and :func:`spade_jax.environments.validation.validate` tells what is wrong with yours.
"""

import pathlib
from typing import Any, Protocol

from spade_jax.environments.parsing import box_content


class Game(Protocol):
    """The contract as a type, for people's editors; environments need not inherit from it."""

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """First observation and info."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info."""
        ...

    def solution(self) -> list[str]:
        """Actions that win after the last reset."""
        ...


def content(action: str) -> str:
    """The content of the box in an action, or the action itself if it has none.

    Environments run without this package and carry their own two lines for it; the examples show
    them.
    """
    inside = box_content(action)
    return action.strip() if inside is None else inside


def examples() -> dict[str, str]:
    """Name -> source of the worked examples."""
    folder = pathlib.Path(__file__).parent / "examples"
    return {path.stem: path.read_text() for path in sorted(folder.glob("[a-z]*.py"))}
