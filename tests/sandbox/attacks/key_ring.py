# Kind: neighbours
# Outcome: raised PermissionError
# Machine: x86_64
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(248, b"user", b"spade-attack", b"x", ctypes.c_size_t(1), -4) < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return "done", 1.0, True, False, {}
