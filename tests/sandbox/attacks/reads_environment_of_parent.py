# Kind: files
# Outcome: raised PermissionError
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            file.read()
        return "done", 1.0, True, False, {}
