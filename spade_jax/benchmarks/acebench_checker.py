"""ACEBench's two accuracies: of the state that services end in, and of the way there.

The official rules, but for one: there a class of the truth that no service has the name of is
passed over, and three of the data's spellings have none. Here they count (``ALIASES``).

A state is service -> attribute -> value, a truth a list of one-key mappings of that kind; both as
JSON gives them, so that all keys are texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

ALIASES = {"BaseAPI": "BaseApi", "ReminderAPI": "ReminderApi", "Reminderpi": "ReminderApi"}
"""Misspelt in the data -> meant."""
State = Mapping[str, Mapping[str, Any]]
Truth = Sequence[Mapping[str, Mapping[str, Any]]]


def differences(state: State, truth: Truth) -> list[str]:
    """Where a state is not what it should be; empty if it is right."""
    wanted = {ALIASES.get(name, name): each for entry in truth for name, each in entry.items()}
    missing = [f"{name}: not in the state" for name in wanted if name not in state]
    beyond = [f"{name}: not in the truth" for name in state if name not in wanted]
    return [
        *missing,
        *beyond,
        *(
            text
            for name in wanted
            if name in state
            for text in _of(name, state[name], wanted[name])
        ),
    ]


def passes_officially(state: State, truth: Truth) -> bool:
    """The official verdict: as many classes, and those of one name alike."""
    named = [entry for entry in truth if entry.keys() <= state.keys()]
    wrong = [
        text for e in named for name, each in e.items() for text in _of(name, state[name], each)
    ]
    return len(truth) == len(state) and not wrong


def _of(name: str, state: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Differences of one service.

    An attribute that the truth leaves out is wrong, one that the state leaves out is not looked at;
    of a mapping the truth's entries must be there, and there may be others; all else is equal.
    """
    found = []
    for attribute, value in state.items():
        place = f"{name}.{attribute}"
        if attribute not in wanted:
            found.append(f"{place}: not in the truth")
        elif not isinstance(wanted[attribute], dict):
            if value != wanted[attribute]:
                found.append(f"{place}: {value!r}, not {wanted[attribute]!r}")
        elif not isinstance(value, dict):
            found.append(f"{place}: {value!r} is no mapping")
        else:
            for key, right in wanted[attribute].items():
                if key not in value:
                    found.append(f"{place}.{key}: missing")
                elif value[key] != right:
                    found.append(f"{place}.{key}: {value[key]!r}, not {right!r}")
    return found


def process(messages: Sequence[str], milestones: Sequence[str] | Sequence[Sequence[str]]) -> float:
    """Share of the milestones that are met in order, by messages of exactly that text.

    One that is never met ends the search: those after it count as missed. Of several ways the best
    counts.

    Args:
      messages: what was said to the executor.
      milestones: texts, or several ways, each a list of texts; empty = met.
    """
    texts = [stone for stone in milestones if isinstance(stone, str)]
    several: list[Sequence[str]] = [way for way in milestones if not isinstance(way, str)]
    ways = several or [texts]
    return max(_share(messages, way) for way in ways)


def _share(messages: Sequence[str], way: Sequence[str]) -> float:
    said = (message.strip() for message in messages)
    met = 0
    for stone in way:
        if stone.strip() not in said:  # which takes all up to it
            break
        met += 1
    return met / len(way) if way else 1.0
