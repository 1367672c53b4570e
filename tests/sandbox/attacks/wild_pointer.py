# Kind: interpreter
# Outcome: died
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        ctypes.memset(id(None), 255, 1 << 20)
        return "done", 1.0, True, False, {}
