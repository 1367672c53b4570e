# Kind: disk
# Outcome: raised PermissionError
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.mkdir("/tmp/spade-attack")
        return "done", 1.0, True, False, {}
