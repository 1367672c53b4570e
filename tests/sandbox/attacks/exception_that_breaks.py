# Kind: interpreter
# Outcome: raised
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        class Broken(BaseException):
            def __str__(self):
                raise self

        raise Broken
        return "done", 1.0, True, False, {}
