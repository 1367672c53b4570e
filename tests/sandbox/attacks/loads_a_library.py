# Kind: interpreter
# Outcome: raised OSError
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        ctypes.CDLL("libssl.so.3")
        return "done", 1.0, True, False, {}
