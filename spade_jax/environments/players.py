"""Players that understand nothing: what they win is won without skill."""

import random
import re

from spade_jax.environments.parsing import boxed

NUMBER = re.compile(r"-?\d{1,9}")
WORD = re.compile(r"[A-Za-z][A-Za-z_-]*")
PHRASE = re.compile(r"\\boxed\{([^{}\n]{1,40})\}|'([^'\n]{1,40})'|\"([^\"\n]{1,40})\"")
SMALL = (*map(str, range(10)), "yes", "no", "a", "b", "c", "d", "left", "right", "up", "down")


def random_action(observation: str, source: random.Random) -> str:
    r"""A boxed action from what the observation shows.

    Drawn from one of five pools, each as likely as the next (an empty one falls back to the last):
    phrases in quotes or boxes, single words, numbers, whole numbers between the smallest and the
    largest number shown, and a fixed list of small numbers and common words.
    """
    pool = source.randrange(5)
    choices: list[str] = []
    if pool == 0:
        choices = [_shown(match) for match in PHRASE.finditer(observation)]
    elif pool == 1:
        choices = WORD.findall(observation)
    elif pool in (2, 3):
        choices = NUMBER.findall(observation)
        if pool == 3 and choices:
            numbers = [int(number) for number in choices]
            return boxed(str(source.randint(min(numbers), max(numbers))))
    return boxed(source.choice(choices or SMALL))


def constant_actions(observations: list[str], count: int) -> list[str]:
    """Boxed actions that could be repeated blindly: phrases, then words and numbers that all of
    the observations show, the most frequent first; filled up with small numbers and words."""
    shared: dict[str, int] = {}
    for pattern in (PHRASE, NUMBER, WORD):
        found = [[_shown(match) for match in pattern.finditer(text)] for text in observations]
        common = set(found[0]).intersection(*found[1:]) if found else set()
        frequency = {item: sum(texts.count(item) for texts in found) for item in common}
        ranked = sorted(common, key=lambda item: (-frequency[item], item))
        for item in ranked[: max(1, count // 3)]:
            shared.setdefault(item, len(shared))
    return [boxed(item) for item in [*shared, *(s for s in SMALL if s not in shared)][:count]]


def _shown(match: re.Match[str]) -> str:
    """The one group that matched, or all where there are no groups."""
    return next(filter(None, match.groups()), match[0])
