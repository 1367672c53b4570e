# Kind: files
# Outcome: raised PermissionError
# Machine: x86_64
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(2, b"/etc/passwd", 0) < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return "done", 1.0, True, False, {}
