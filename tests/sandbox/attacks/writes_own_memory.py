# Kind: files
# Outcome: raised PermissionError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        with open("/proc/self/mem", "r+b") as file:
            file.write(b"x")
        return "done", 1.0, True, False, {}
