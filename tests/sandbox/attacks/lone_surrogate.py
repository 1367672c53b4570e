# Kind: output
# Outcome: malformed
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        return "\ud800", 0.0, False, False, {}
