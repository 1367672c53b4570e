# Kind: processor
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            pass
        return "done", 1.0, True, False, {}
