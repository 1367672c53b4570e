# Kind: teardown
# Outcome: harmless
class Spinner:
    def __del__(self):
        while True:
            pass


class AttackEnv:
    def reset(self, seed=None):
        self.spinner = Spinner()
        return "start", {}

    def step(self, action):
        return "done", 1.0, True, False, {}
