# Kind: processes
# Outcome: raised
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.forkpty()
        return "done", 1.0, True, False, {}
