# Kind: files
# Outcome: raised PermissionError
class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        with open("/var/run/secrets/kubernetes.io/serviceaccount/token") as file:
            file.read()
        return "done", 1.0, True, False, {}
