"""Games of reactions: every turn shows a situation, and the right reaction to it moves the game on.

What is right is common sense, or, in games whose rule is *contrary*, its negation. No observation
says which; playing shows it, and the hint tells. Situations and reactions are data
(:class:`Theme`); how a game is won is one of :data:`MECHANICS`, drawn apart from the theme, because
a designer combines what it was taught.
"""

import dataclasses
import random
from collections.abc import Sequence

from spade_jax.warm_start.families.program import Game, compose, method

RULES = ("usual", "contrary")
HINTS = {rule: f"the '{rule}' wins" for rule in RULES}


@dataclasses.dataclass(frozen=True)
class Mechanics:
    """How right and wrong reactions add up.

    Attributes:
      wrong: what a wrong reaction does to ``self.score``; a right one adds 1.
      progress: f-string that shows where the game stands.
      lost: condition of a loss before the turns are used up, if there is one.
      slack: turns beyond the goal; one is chosen.
    """

    wrong: str
    progress: str
    lost: str = ""
    slack: Sequence[int] = (0, 1)


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
        slack=(1,),
    ),
)


@dataclasses.dataclass(frozen=True)
class Theme:
    """A family: situations that belong together, each with the usual reaction."""

    name: str
    skill: str
    situations: Sequence[tuple[str, str]]

    def create(self, rng: random.Random, noun: str) -> Game:
        """A game with some of the situations, in which common sense holds or its negation."""
        mechanics = rng.choice(MECHANICS)
        goal, rule = rng.choice([2, 2, 3]), rng.choice(RULES)
        kept = rng.sample(range(len(self.situations)), rng.randint(5, len(self.situations)))
        shown = [self.situations[index] for index in sorted(kept)]
        init = [f"self.goal = {goal}", f"self.rule = '{rule}'", "self.table = {"]
        init += [f'    "{seen}": "{usual}",' for seen, usual in shown]
        init += ["}"]
        reset = ["self.cases = rng.choices(sorted(self.table), k=30)"]
        if mechanics.lost:
            reset.append("self.lives = 2")
        source = compose(
            rng,
            self.name,
            noun,
            goal + rng.choice(mechanics.slack),
            init=init,
            reset=reset,
            methods=method(
                "right(self, case)",
                'negation = "not " if self.rule == "contrary" else ""',
                "return negation + self.table[case]",
            )
            + method("view(self)", f'return f"{mechanics.progress}, {{self.cases[self.turn]}}"'),
            step=[
                "good = word == self.right(self.cases[self.turn])",
                "if good:",
                "    self.score += 1",
                "else:",
                f"    {mechanics.wrong}",
                'verdict = "right" if good else "wrong"',
            ],
            lost=mechanics.lost,
            reply='"{verdict}, {self.view()}"',
            solution=["return [self.right(case) for case in self.cases[:self.goal]]"],
        )

        def player(skill: float, rng: random.Random, hint: str | None) -> ReactionPlayer:
            return ReactionPlayer(self, skill, rng, hint)

        return Game(self.name, self.skill, source, HINTS[rule], player)


class ReactionPlayer:
    """Guesses the rule until a verdict tells it, or follows the hint; sometimes errs in the case.

    A guess is a coin toss, so that a game without room for a wrong one is won half of the time.
    """

    def __init__(self, theme: Theme, skill: float, rng: random.Random, hint: str | None):
        self.theme, self.skill, self.rng = theme, skill, rng
        self.contrary = rng.random() < 0.5 if hint is None else hint == HINTS["contrary"]
        self.sure = hint is not None
        self.told = True

    def act(self, observation: str) -> str:
        verdict, _, rest = observation.partition(", ")
        if verdict in ("right", "wrong") and not self.sure and self.told:
            self.contrary ^= verdict == "wrong"
            self.sure = True
        case = (rest or verdict).rpartition(", ")[2]
        self.told = self.rng.random() < self.skill
        if not self.told:
            case = self.rng.choice(self.theme.situations)[0]
        reaction = dict(self.theme.situations)[case]
        return f"not {reaction}" if self.contrary else reaction
