# Kind: privileges
# Outcome: died
# Machine: x86_64
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(0x40000000 + 39) < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return "done", 1.0, True, False, {}
