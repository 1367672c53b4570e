# Kind: memory
# Outcome: raised OSError
import mmap


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        maps = []
        while True:
            maps.append(mmap.mmap(-1, 1 << 24))
        return "done", 1.0, True, False, {}
