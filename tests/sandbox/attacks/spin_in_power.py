# Kind: processor
# Outcome: timeout memory
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        len(str(7**7**9))
        return "done", 1.0, True, False, {}
