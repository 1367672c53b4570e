# Kind: interpreter
# Outcome: raised KeyboardInterrupt
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        raise KeyboardInterrupt
        return "done", 1.0, True, False, {}
