# Kind: interpreter
# Outcome: raised OSError PermissionError died
import mmap


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        code = b"\xb8\x01\x00\x00\x00\xcd\x80\xc3"
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(code)
        return "done", 1.0, True, False, {}
