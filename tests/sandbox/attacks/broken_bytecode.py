# Kind: interpreter
# Outcome: died raised timeout memory
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        code = (lambda: 0).__code__
        exec(code.replace(co_code=bytes(range(256)) * 64, co_stacksize=1))
        return "done", 1.0, True, False, {}
