# Kind: channel
# Outcome: too_large
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.write(3, b"\xff\xff\xff\xff")
        while True:
            pass
        return "done", 1.0, True, False, {}
