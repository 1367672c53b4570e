# Kind: files
# Outcome: harmless
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        assert not os.environ
        assert os.getenv("HOME") is None
        return "done", 1.0, True, False, {}
