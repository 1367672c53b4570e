# Kind: teardown
# Outcome: timeout
class Spinner:
    def __del__(self):
        while True:
            pass


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        Spinner()
        return "done", 1.0, True, False, {}
