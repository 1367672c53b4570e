# Kind: interpreter
# Outcome: raised GeneratorExit
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        raise GeneratorExit
        return "done", 1.0, True, False, {}
