# Kind: reward
# Outcome: harmless
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        class Lie(str):
            def __str__(self):
                return "y" * 10**7

            def __len__(self):
                return 10**9

        return Lie("x"), 1.0, True, False, {}
