# Kind: processor
# Outcome: timeout
import re


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        re.match(r"(a|a)*b", "a" * 40)
        return "done", 1.0, True, False, {}
