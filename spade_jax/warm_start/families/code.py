"""Breaking a code of three digits from the places that were right; the hint tells one of them."""

import dataclasses
import random
import re

from spade_jax.warm_start.families.program import Game, compose, method

DIGITS = "123456"
PLACES = ("first", "second", "third")


@dataclasses.dataclass(frozen=True)
class Code:
    """The digit in one place is the hidden key, the other two are drawn with the instance."""

    name: str
    skill: str

    def create(self, rng: random.Random, noun: str) -> Game:
        place, top = rng.randrange(3), rng.choice([5, 6])
        key = rng.randint(1, top)
        source = compose(
            rng,
            self.name,
            noun,
            rng.choice([4, 5]),
            init=[f"self.key = {key}"],
            reset=[
                f"self.code = [self.rng.randint(1, {top}) for _ in range(3)]",
                f"self.code[{place}] = self.key",
                'self.known = ["_", "_", "_"]',
            ],
            methods=method("view(self)", f'return " ".join(self.known) + " of 1 to {top}"'),
            step=[
                "code = [str(n) for n in self.code]",
                "digits = word.split()",
                "for i in range(3):",
                "    if digits[i:i + 1] == code[i:i + 1]:",
                "        self.known[i] = digits[i]",
            ],
            won="digits == code",
            solution=['return [" ".join(str(n) for n in self.code)]'],
        )
        hint = f"{PLACES[place]} is {key}"
        return Game(self.name, self.skill, source, hint, CodePlayer)


class CodePlayer:
    """Keeps what is known and tries a new digit wherever something is missing."""

    def __init__(self, skill: float, rng: random.Random, hint: str | None):
        self.skill, self.rng = skill, rng
        self.tried: list[str] = []
        self.told: tuple[int, str] | None = None
        if hint:
            place, _, digit = hint.split()
            self.told = (PLACES.index(place), digit)

    def act(self, observation: str) -> str:
        known = re.findall(r"[_\d](?= )", observation)[:3]
        top = observation[-1]
        fresh = [digit for digit in DIGITS if digit <= top and digit not in self.tried]
        trial = fresh[0] if fresh and self.rng.random() < self.skill else self.rng.choice(DIGITS)
        self.tried.append(trial)
        guess = [trial if digit == "_" else digit for digit in known]
        if self.told:
            guess[self.told[0]] = self.told[1]
        return " ".join(guess)
