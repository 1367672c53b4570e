# Kind: processor
# Outcome: timeout
import itertools


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        sum(itertools.repeat(1))
        return "done", 1.0, True, False, {}
