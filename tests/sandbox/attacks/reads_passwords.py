# Kind: files
# Outcome: raised PermissionError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        with open("/etc/passwd") as file:
            file.read()
        return "done", 1.0, True, False, {}
