# Kind: memory
# Outcome: raised ValueError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        raise ValueError("x" * 10**7)
        return "done", 1.0, True, False, {}
