# Kind: interpreter
# Outcome: died
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os._exit(0)
        return "done", 1.0, True, False, {}
