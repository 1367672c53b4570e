# Kind: interpreter
# Outcome: died raised malformed
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.write = lambda *args: 1 / 0
        return "done", 1.0, True, False, {}
