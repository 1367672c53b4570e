# Kind: disk
# Outcome: raised PermissionError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        with open("/dev/shm/spade-attack", "w") as file:
            file.write("x")
        return "done", 1.0, True, False, {}
