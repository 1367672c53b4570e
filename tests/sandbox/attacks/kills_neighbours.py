# Kind: signals
# Outcome: harmless
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        hit = 0
        for pid in range(1, 5000):
            try:
                os.kill(pid, 9)
                hit += 1
            except OSError:
                continue
        assert hit == 0
        return "done", 1.0, True, False, {}
