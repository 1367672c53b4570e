"""Games of reactions: every turn shows a situation, and the right reaction to it moves the game on.

What is right is common sense or its negation, as a coin of the seed decides. No observation says
which: a verdict on a reaction shows it, and so does, at no price, a certain word. The word is the
game's secret, and the hint tells it. Since the coin falls anew with each seed, no first guess wins
or loses a game always. Situations and reactions are data (:class:`Theme`); how a game is won is one
of :data:`MECHANICS`, drawn apart from the theme, because a designer combines what it was taught.
"""

import dataclasses
import random
from collections.abc import Sequence

from spade_jax.warm_start.families.program import Game, compose, method

WORDS = ("ask", "look", "listen", "knock", "ring", "smell")
"""One of them makes a game tell its rule."""
HINT = "the '{}' tells"
RULES = ("usual", "contrary")
GOALS = (2, 2, 2, 3)
"""Right reactions that win; one is chosen."""
SLACK = (0, 0, 1, 6, 6, 6)
"""Wrong reactions that a game forgives; one is chosen."""
HEEDS = 0.6
"""Share of able players that learn from a verdict: what self-play has to teach the agent."""


@dataclasses.dataclass(frozen=True)
class Mechanics:
    """How right and wrong reactions add up.

    Attributes:
      wrong: what a wrong reaction does to ``self.score``; a right one adds 1.
      progress: f-string that shows where the game stands.
      lost: condition of a loss before the turns are used up, if there is one.
    """

    wrong: str
    progress: str
    lost: str = ""


MECHANICS = (
    # A step forward or a step back.
    Mechanics(
        wrong="self.score = max(0, self.score - 1)",
        progress="{self.score} of {self.goal} done",
    ),
    # Only an unbroken series counts.
    Mechanics(
        wrong="self.score = 0",
        progress="{self.score} in a row",
    ),
    # Nothing is lost but lives.
    Mechanics(
        wrong="self.lives -= 1",
        progress="{self.lives} lives",
        lost="self.lives == 0",
    ),
)


@dataclasses.dataclass(frozen=True)
class Theme:
    """A family: situations that belong together, each with the usual reaction."""

    name: str
    skill: str
    situations: Sequence[tuple[str, str]]
    goals: Sequence[int] = GOALS
    slack: Sequence[int] = SLACK

    def create(self, rng: random.Random, noun: str) -> Game:
        """A game with some of the situations and one of the words."""
        mechanics = rng.choice(MECHANICS)
        goal, slack = rng.choice(self.goals), rng.choice(self.slack)
        word = rng.choice(WORDS)
        kept = rng.sample(range(len(self.situations)), rng.randint(5, len(self.situations)))
        shown = [self.situations[index] for index in sorted(kept)]
        init = [f"self.goal = {goal}", f"self.word = '{word}'", "self.table = {"]
        init += [f'    "{seen}": "{usual}",' for seen, usual in shown]
        init += ["}"]
        reset = [
            f"self.rule, self.told = rng.choice({list(RULES)}), False",
            "self.cases = rng.choices(sorted(self.table), k=30)",
        ]
        if mechanics.lost:
            reset.append(f"self.lives = {slack + 1}")
        source = compose(
            rng,
            self.name,
            noun,
            goal + slack,
            init=init,
            reset=reset,
            methods=method(
                "right(self, case)",
                'negation = "not " if self.rule == "contrary" else ""',
                "return negation + self.table[case]",
            )
            + method("view(self)", f'return f"{mechanics.progress}, {{self.cases[self.turn]}}"'),
            step=[
                "if word == self.word and not self.told:",
                "    verdict, self.told = self.rule, True",
                "    self.turn -= 1",
                "elif word == self.right(self.cases[self.turn]):",
                '    verdict = "right"',
                "    self.score += 1",
                "else:",
                '    verdict = "wrong"',
                f"    {mechanics.wrong}",
            ],
            lost=mechanics.lost,
            reply='"{verdict}, {self.view()}"',
            solution=["return [self.right(case) for case in self.cases[:self.goal]]"],
        )

        def player(skill: float, rng: random.Random, hint: str | None) -> ReactionPlayer:
            return ReactionPlayer(self, skill, rng, hint)

        return Game(self.name, self.skill, source, HINT.format(word), player)


class ReactionPlayer:
    """Says the hint's word first. Without one tosses a coin, then heeds verdicts or tosses again.

    A game without room for a wrong guess is then won half of the time at best, one with some room
    by players who heed, one with much room by nearly all.
    """

    def __init__(self, theme: Theme, skill: float, rng: random.Random, hint: str | None):
        self.theme, self.skill, self.rng = theme, skill, rng
        self.words = [word for word in WORDS if hint == HINT.format(word)]
        self.heeds = rng.random() < HEEDS or hint is not None
        self.contrary = False
        self.sure = False
        self.meant = True

    def act(self, observation: str) -> str:
        if self.words:
            return self.words.pop()
        verdict = observation.partition(", ")[0]
        if verdict in RULES:
            self.contrary, self.sure = verdict == "contrary", True
        elif verdict in ("right", "wrong") and self.heeds and self.meant and not self.sure:
            self.contrary ^= verdict == "wrong"
            self.sure = True
        elif not self.sure:
            self.contrary = self.rng.random() < 0.5
        case = observation.rpartition(", ")[2]
        self.meant = self.rng.random() < self.skill
        if not self.meant:
            case = self.rng.choice(self.theme.situations)[0]
        reaction = dict(self.theme.situations)[case]
        return f"not {reaction}" if self.contrary else reaction
