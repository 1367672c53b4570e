"""The common shape of a generated program.

Families fill in lines; everything else is the same text in each program, because a line that
recurs becomes one token of the tokenizer trained on them.
"""

import dataclasses
import random
import typing
from collections.abc import Sequence


class Player(typing.Protocol):
    """Plays one episode from what the agent sees."""

    def act(self, observation: str) -> str:
        """The command for ``observation``, without the box."""
        ...


@dataclasses.dataclass(frozen=True)
class Game:
    """One generated environment with what only its author knows.

    Attributes:
      hint: what a hint writer should say: the key that the observations do not show.
      player: makes a player from its skill (1 = as well as the observations allow, 0 = random
        commands), a source of randomness, and the hint or None.
    """

    family: str
    skill: str
    source: str
    hint: str
    player: typing.Callable[[float, random.Random, str | None], Player]


PURPOSES = (
    "Find the rule and use it.",
    "A hidden value decides.",
    "Learn from each answer.",
    "Watch, try, then win.",
    "Every turn tells something.",
    "One secret, many turns.",
)
COMMANDS = (
    'word = action.replace("\\\\boxed{", "").strip("{} ")',
    'word = action.split("{")[-1].strip("} ")',
    'word = action.partition("boxed{")[2].rstrip("}").strip()',
)
OPENINGS = ("{noun}: ", "game of {noun}: ", "the {noun} case: ", "think {noun}: ")
WON = ("won", "solved", "well done", "you win")
LOST = ("lost", "game over", "you lose", "out of turns")


def compose(
    rng: random.Random,
    name: str,
    noun: str,
    turns: int,
    *,
    init: Sequence[str],
    reset: Sequence[str],
    methods: str = "",
    step: Sequence[str],
    won: str = "self.score >= self.goal",
    lost: str = "",
    reply: str = '"{self.view()}"',
    solution: Sequence[str],
) -> str:
    """Source of a game that obeys the contract of :mod:`spade_jax.environments`.

    Args:
      rng: chooses between wordings that mean the same, so that two games of a family are not
        near-duplicates.
      name: class name without ``Env``.
      init, reset, step, solution: lines of those methods, relative to the method's body. All may
        use ``self.turn`` and ``self.score``, which start at 0; step has the action in ``word``.
      methods: further methods, among them ``view(self)``, the visible state as a string.
      won: condition of a win after the step's lines have run.
      lost: condition of a loss before the turns are used up, if there is one.
      reply: f-string (its quotes included) of the observation after a step.
    """
    lines = [
        "import random\n\n\n",
        f"class {name}Env:\n",
        f'    """{rng.choice(PURPOSES)}"""\n\n',
        f"    def __init__(self, max_turns={turns}, **options):\n",
        "        self.max_turns = max_turns\n",
        _indented([*init, "self.reset()"]) + "\n",
        "    def reset(self, seed=None):\n",
        "        rng = random.Random(seed)\n",
        "        self.turn = self.score = 0\n",
        _indented(reset),
        f"        noun = '{noun}'\n",
        f'        return f"{rng.choice(OPENINGS)}{{self.view()}}", {{}}\n\n',
        methods,
        "    def step(self, action):\n",
        f"        {rng.choice(COMMANDS)}\n",
        _indented(step),
        "        self.turn += 1\n",
        f"        if {won}:\n",
        f'            return "{rng.choice(WON)}", 1, True, False, {{}}\n',
    ]
    if lost:
        lines += [
            f"        if {lost}:\n",
            f'            return "{rng.choice(LOST)}", 0, True, False, {{}}\n',
        ]
    if rng.random() < 0.5:
        lines += [
            "        late = self.turn >= self.max_turns\n",
            f"        return f{reply}, 0, False, late, {{}}\n\n",
        ]
    else:
        lines += [
            "        if self.turn >= self.max_turns:\n",
            f'            return "{rng.choice(LOST)}", 0, False, True, {{}}\n',
            f"        return f{reply}, 0, False, False, {{}}\n\n",
        ]
    lines += ["    def solution(self):\n", _indented(solution)]
    return "".join(lines)


def method(head: str, *lines: str) -> str:
    """One method for ``compose(methods=...)``."""
    return f"    def {head}:\n" + _indented(lines) + "\n"


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"        {line}\n" for line in lines)
