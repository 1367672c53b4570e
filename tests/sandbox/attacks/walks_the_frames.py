# Kind: interpreter
# Outcome: harmless
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        frame = sys._getframe()
        while frame.f_back:
            frame = frame.f_back
            assert "host" not in frame.f_globals
        return "done", 1.0, True, False, {}
