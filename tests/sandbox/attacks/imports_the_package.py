# Kind: interpreter
# Outcome: raised ModuleNotFoundError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        import spade_jax.config

        print(spade_jax.config)
        return "done", 1.0, True, False, {}
