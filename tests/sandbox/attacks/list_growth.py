# Kind: memory
# Outcome: memory timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        items = []
        while True:
            items.append("x" * 10**5 + str(len(items)))
        return "done", 1.0, True, False, {}
