"""Deduce a three-digit code from clues; a wrong code costs one of three tries."""

import random
import re


class ClueLockEnv:
    """Three different digits, described by sums and comparisons that leave one code."""

    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        """Sets a new code and its clues."""
        self.code = random.Random(seed).sample(range(10), 3)
        self.turn = 0
        first, second, third = self.code
        order = "larger" if first > second else "smaller"
        return (
            "A lock has a code of three different digits.\n"
            f"The first two digits add up to {first + second}.\n"
            f"The last two digits add up to {second + third}.\n"
            f"All three add up to {first + second + third}.\n"
            f"The first digit is {order} than the second.\n"
            f"Enter the digits in order, without spaces: \\boxed{{xyz}}. "
            f"You have {self.max_turns} tries.",
            {},
        )

    def step(self, action):
        """Tries one code."""
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.fullmatch(r"\\boxed\{\s*(\d{3})\s*\}", action)
        if match is None:
            return "Enter exactly three digits, as in \\boxed{abc}.", 0.0, False, late, {}
        if [int(digit) for digit in match[1]] == self.code:
            return "The lock opens.", 1.0, True, False, {}
        return "The lock stays shut.", 0.0, False, late, {}

    def solution(self):
        """The code."""
        return ["".join(str(digit) for digit in self.code)]
