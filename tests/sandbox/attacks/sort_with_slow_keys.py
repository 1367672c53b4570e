# Kind: processor
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        sorted(range(10**6), key=lambda each: sum(range(10**4)))
        return "done", 1.0, True, False, {}
