# Kind: reward
# Outcome: malformed
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        return "x", float("nan"), True, False, {}
