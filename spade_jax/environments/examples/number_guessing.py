"""Find a hidden number by halving: each answer says whether it is higher or lower."""

import random
import re


class NumberGuessingEnv:
    """A number from 1 to 200 and just enough guesses to find it by halving."""

    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        """Hides a new number."""
        self.number = random.Random(seed).randint(1, 200)
        self.turn = 0
        return (
            "I think of a whole number from 1 to 200. Guess it: \\boxed{number}. "
            f"I answer 'higher' or 'lower'. You have {self.max_turns} guesses.",
            {},
        )

    def step(self, action):
        """Compares one guess."""
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.fullmatch(r"\\boxed\{\s*(-?\d{1,9})\s*\}", action)
        if match is None:
            return "Answer with a whole number, as in \\boxed{17}.", 0.0, False, late, {}
        guess = int(match[1])
        if guess == self.number:
            return "Correct.", 1.0, True, False, {}
        word = "higher" if self.number > guess else "lower"
        return f"It is {word} than {guess}.", 0.0, False, late, {}

    def solution(self):
        """The number."""
        return [str(self.number)]
