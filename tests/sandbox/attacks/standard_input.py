# Kind: files
# Outcome: harmless
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        assert os.read(0, 10) == b""
        return "done", 1.0, True, False, {}
