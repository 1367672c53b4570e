# Kind: teardown
# Outcome: harmless
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        return "done", 1.0, True, False, {}

    def close(self):
        while True:
            pass
