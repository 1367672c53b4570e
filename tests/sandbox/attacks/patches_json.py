# Kind: interpreter
# Outcome: raised died malformed
import json


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        json.dumps = lambda *args, **kwargs: "[]"
        return "done", 1.0, True, False, {}
