# Kind: neighbours
# Outcome: raised PermissionError
# Machine: x86_64
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(273, 1, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)) < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return "done", 1.0, True, False, {}
