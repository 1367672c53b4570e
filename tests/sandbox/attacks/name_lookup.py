# Kind: network
# Outcome: harmless
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        answer = ctypes.c_void_p()
        assert ctypes.CDLL(None).getaddrinfo(b"example.com", b"80", None, ctypes.byref(answer)) != 0
        return "done", 1.0, True, False, {}
