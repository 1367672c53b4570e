# Kind: memory
# Outcome: memory timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        tower = ()
        while True:
            tower = (tower, [0] * 1000)
        return "done", 1.0, True, False, {}
