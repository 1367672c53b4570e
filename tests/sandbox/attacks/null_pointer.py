# Kind: interpreter
# Outcome: died
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        ctypes.string_at(0)
        return "done", 1.0, True, False, {}
