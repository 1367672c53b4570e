# Kind: channel
# Outcome: timeout
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            os.read(3, 65536)
        return "done", 1.0, True, False, {}
