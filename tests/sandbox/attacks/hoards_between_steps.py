# Kind: memory
# Outcome: memory timeout
class AttackEnv:
    def reset(self, seed=None):
        self.hoard = []
        return "start", {}

    def step(self, action):
        self.hoard.append(bytearray(100 << 20))
        return "more", 0.0, False, False, {}
