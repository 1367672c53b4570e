# Kind: disk
# Outcome: raised PermissionError
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.open("/", os.O_TMPFILE | os.O_RDWR)
        return "done", 1.0, True, False, {}
