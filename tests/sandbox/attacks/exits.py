# Kind: interpreter
# Outcome: raised SystemExit
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        sys.exit(0)
        return "done", 1.0, True, False, {}
