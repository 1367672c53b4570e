# Kind: output
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            print("x" * (1 << 16))
        return "done", 1.0, True, False, {}
