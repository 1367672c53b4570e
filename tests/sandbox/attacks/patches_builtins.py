# Kind: interpreter
# Outcome: raised died malformed
import builtins


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        for name in ("len", "isinstance", "getattr", "type"):
            setattr(builtins, name, None)
        return "done", 1.0, True, False, {}
