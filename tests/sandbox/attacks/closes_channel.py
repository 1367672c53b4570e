# Kind: channel
# Outcome: died
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.close(3)
        return "done", 1.0, True, False, {}
