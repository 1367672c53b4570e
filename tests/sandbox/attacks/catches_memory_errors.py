# Kind: memory
# Outcome: timeout memory died
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        items = []
        while True:
            try:
                items.append(bytearray(1 << 20))
            except MemoryError:
                items = items[:1]
        return "done", 1.0, True, False, {}
