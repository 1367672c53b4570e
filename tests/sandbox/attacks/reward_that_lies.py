# Kind: reward
# Outcome: malformed harmless
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        class Lie(float):
            def __repr__(self):
                return "1e999"

            def __float__(self):
                return 1e999

        return "x", Lie(1.0), True, False, {}
