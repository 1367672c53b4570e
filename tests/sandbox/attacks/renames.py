# Kind: disk
# Outcome: raised PermissionError
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.rename("/etc/passwd", "/etc/spade-attack")
        return "done", 1.0, True, False, {}
