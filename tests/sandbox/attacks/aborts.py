# Kind: interpreter
# Outcome: died raised
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.abort()
        return "done", 1.0, True, False, {}
