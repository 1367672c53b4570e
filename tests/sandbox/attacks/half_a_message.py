# Kind: channel
# Outcome: timeout
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.write(3, b"\x00\x00\x00\x10[")
        while True:
            pass
        return "done", 1.0, True, False, {}
