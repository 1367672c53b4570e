# Kind: processor
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        class Slow(Exception):
            def __str__(self):
                while True:
                    pass

        raise Slow
        return "done", 1.0, True, False, {}
