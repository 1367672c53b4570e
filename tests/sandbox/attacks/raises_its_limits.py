# Kind: privileges
# Outcome: raised
import resource


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        return "done", 1.0, True, False, {}
