# Kind: processes
# Outcome: raised RuntimeError
import threading


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        threading.Thread(target=print).start()
        return "done", 1.0, True, False, {}
