"""The situations of the games as procedural tasks, for the adaptive-difficulty baseline.

One a family. A question shows what was tried before and what is to be answered now; which rule
holds, common sense or its negation, must be seen from it. At level 0 the rule is named. At level n
there are n earlier reactions, and the verdict on one of them is shown.

    python -m spade_jax.train --config=configs/adaptive_difficulty.py:laptop --workdir=runs/tasks
"""

import random

from spade_jax.environments import tasks
from spade_jax.warm_start.families import FAMILIES, Theme
from spade_jax.warm_start.families.reaction import RULES


class Reaction:
    """A family's reactions as a :class:`tasks.Task`."""

    def __init__(self, theme: Theme):
        self.name = theme.name
        self._usual = dict(theme.situations)

    def problem(self, level: int, seed: int) -> tuple[str, str]:
        """Question and reaction."""
        rng = random.Random(seed)
        rule = rng.choice(RULES)
        *before, case = rng.choices(list(self._usual), k=level + 1)
        if not before:
            return f"{rule}, {case}", self._right(rule, case)
        judged = rng.randrange(level)
        lines = []
        for index, earlier in enumerate(before):
            tried = self._right(rng.choice(RULES), earlier)
            verdict = "right" if tried == self._right(rule, earlier) else "wrong"
            lines.append(f"{earlier}: {tried}" + (f", {verdict}" if index == judged else ""))
        return "\n".join([*lines, case]), self._right(rule, case)

    def right(self, answer: str, truth: str) -> bool:
        """Word for word."""
        return answer.strip() == truth

    def _right(self, rule: str, case: str) -> str:
        return ("not " if rule == "contrary" else "") + self._usual[case]


def reactions() -> list[Reaction]:
    """A task for each family."""
    return [Reaction(family) for family in FAMILIES]


if __name__ == "__main__":
    tasks.serve(reactions())
