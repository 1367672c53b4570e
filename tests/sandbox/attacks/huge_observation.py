# Kind: output
# Outcome: too_large
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        return "x" * (1 << 22), 0.0, False, False, {}
