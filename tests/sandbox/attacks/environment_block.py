# Kind: files
# Outcome: harmless
import ctypes


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        block = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        found = []
        while block and block[len(found)]:
            found.append(block[len(found)])
        assert all(item.startswith(b"PYTHONHASHSEED=") for item in found), found
        return "done", 1.0, True, False, {}
