# Kind: output
# Outcome: harmless
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        for _ in range(100):
            print("x" * (1 << 20))
        sys.stderr.write("y" * (1 << 20))
        return "done", 1.0, True, False, {}
