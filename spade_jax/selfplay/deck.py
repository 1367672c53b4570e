"""Drawing without replacement, pass after pass."""

import dataclasses
import random

from spade_jax.selfplay import schedule


@dataclasses.dataclass
class Deck:
    """Cards 0 … n − 1: each comes once in every pass, in an order drawn anew for the pass.

    Attributes:
      waiting: cards of the present pass that have not come yet, the next one first.
      passes: passes begun.
    """

    waiting: list[int] = dataclasses.field(default_factory=list)
    passes: int = 0

    def draw(self, count: int, cards: int, seed: int) -> list[int]:
        """The next ``count`` cards of ``cards``, all different even where a pass ends among them.

        Raises:
          ValueError: there are fewer cards than that.
        """
        if count > cards:
            raise ValueError(f"{count} different cards of {cards}")
        drawn = self.waiting[:count]
        del self.waiting[:count]
        if missing := count - len(drawn):
            order = list(range(cards))
            random.Random(schedule.derive_seed(seed, "pass", self.passes)).shuffle(order)
            self.passes += 1
            fresh = [card for card in order if card not in drawn][:missing]
            drawn += fresh
            self.waiting = [card for card in order if card not in fresh]
        return drawn
