# Kind: memory
# Outcome: memory
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        self.block = bytearray(1 << 34)
        return "done", 1.0, True, False, {}
