# Kind: processor
# Outcome: timeout
import time


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        time.sleep(10**6)
        return "done", 1.0, True, False, {}
