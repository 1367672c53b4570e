# Kind: channel
# Outcome: too_large malformed
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            os.write(3, b"\x00" * 65536)
        return "done", 1.0, True, False, {}
