# Kind: output
# Outcome: raised Resource
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.write(1, b"x" * (1 << 20))
        os.write(2, b"x" * (1 << 20))
        return "done", 1.0, True, False, {}
