# Kind: interpreter
# Outcome: raised died
import builtins


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        builtins.__dict__.clear()
        return "done", 1.0, True, False, {}
