# Kind: memory
# Outcome: memory timeout
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        text = "ab"
        while True:
            text += text
        return "done", 1.0, True, False, {}
