# Kind: memory
# Outcome: raised RecursionError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        def dive():
            dive()

        dive()
        return "done", 1.0, True, False, {}
