# Kind: processor
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                continue
        return "done", 1.0, True, False, {}
