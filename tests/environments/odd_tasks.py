"""A user's module of tasks, one of which misbehaves."""

import random

from spade_jax.environments import tasks


class Sum:
    """Two numbers of as many digits as the level says, and one."""

    def __init__(self, name="sum"):
        self.name = name

    def problem(self, level, seed):
        rng = random.Random(seed)
        first, second = (rng.randrange(10 ** (level + 1)) for _ in range(2))
        return f"{first} + {second}", first + second

    def right(self, answer, truth):
        return int(answer) == truth


class Odd(Sum):
    """Has no problem for even seeds."""

    def problem(self, level, seed):
        if seed % 2 == 0 or level == 9:
            raise ValueError("no such problem")
        return super().problem(level, seed)


TASKS = [Sum(), Odd("odd"), Sum("other")]

if __name__ == "__main__":
    tasks.serve(TASKS)
