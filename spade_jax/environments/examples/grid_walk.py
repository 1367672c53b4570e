"""Walk over a grid with holes to a goal; a step into a hole ends the game."""

import collections
import random
import re

MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}


class GridWalkEnv:
    """A 6 x 6 map that is drawn once; afterwards only the position is told."""

    def __init__(self, max_turns=14):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        """Draws a map on which the far corner can be reached within the turns."""
        source = random.Random(seed)
        while True:
            self.holes = set(source.sample([(r, c) for r in range(6) for c in range(6)], 10))
            self.holes -= {(0, 0)}
            if (5, 5) not in self.holes and 0 < len(self.path()) <= self.max_turns:
                break
        self.place = (0, 0)
        self.turn = 0
        rows = [
            "".join("O" if (r, c) in self.holes else "G" if r + c == 10 else "." for c in range(6))
            for r in range(6)
        ]
        text = "\n".join(rows)
        return (
            f"Map, north at the top ('O' is a hole, 'G' the goal):\n{text}\n"
            "You start in the north-west corner. Each turn move with \\boxed{direction}: north, "
            f"south, west or east. A hole ends the game. You have {self.max_turns} turns.",
            {},
        )

    def step(self, action):
        """Takes one step."""
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.fullmatch(r"\\boxed\{\s*(north|south|west|east)\s*\}", action)
        if match is None:
            return "Move with \\boxed{north}, south, west or east.", 0.0, False, late, {}
        down, right = MOVES[match[1]]
        place = (self.place[0] + down, self.place[1] + right)
        if not (0 <= place[0] < 6 and 0 <= place[1] < 6):
            return "A wall is in the way.", 0.0, False, late, {}
        self.place = place
        if place in self.holes:
            return "You fell into a hole.", 0.0, True, False, {}
        if place == (5, 5):
            return "You reached the goal.", 1.0, True, False, {}
        return f"You are in row {place[0] + 1}, column {place[1] + 1}.", 0.0, False, late, {}

    def path(self):
        """A shortest walk to the goal as directions; empty if there is none."""
        walks: collections.deque = collections.deque([((0, 0), [])])
        seen = {(0, 0)}
        while walks:
            place, walk = walks.popleft()
            if place == (5, 5):
                return walk
            for name, (down, right) in MOVES.items():
                there = (place[0] + down, place[1] + right)
                inside = 0 <= there[0] < 6 and 0 <= there[1] < 6
                if inside and there not in seen and there not in self.holes:
                    seen.add(there)
                    walks.append((there, [*walk, name]))
        return []

    def solution(self):
        """A shortest walk."""
        return self.path()
