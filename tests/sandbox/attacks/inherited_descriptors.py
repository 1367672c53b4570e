# Kind: files
# Outcome: harmless
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        for number in range(4, 4096):
            try:
                os.fstat(number)
            except OSError:
                continue
            raise AssertionError(f"descriptor {number} is open")
        return "done", 1.0, True, False, {}
