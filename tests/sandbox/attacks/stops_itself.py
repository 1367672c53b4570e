# Kind: signals
# Outcome: raised PermissionError
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.kill(os.getpid(), 19)
        return "done", 1.0, True, False, {}
