# Kind: interpreter
# Outcome: raised OSError PermissionError
import mmap


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        return "done", 1.0, True, False, {}
