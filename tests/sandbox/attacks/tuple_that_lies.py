# Kind: reward
# Outcome: harmless malformed
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        class Lie(tuple):
            def __len__(self):
                return 5

            def __iter__(self):
                while True:
                    yield 1.0

        return Lie(("x", 1.0, True, False, {}))
