# Kind: teardown
# Outcome: harmless
import atexit
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        atexit.register(lambda: os.write(3, b"x" * 100))
        return "done", 1.0, True, False, {}
