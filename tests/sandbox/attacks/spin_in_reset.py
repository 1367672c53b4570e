# Kind: processor
# Outcome: timeout
class AttackEnv:
    def reset(self, seed=None):
        while True:
            pass
