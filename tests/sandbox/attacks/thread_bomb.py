# Kind: processes
# Outcome: timeout
import _thread
import time


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        while True:
            try:
                _thread.start_new_thread(time.sleep, (99,))
            except RuntimeError:
                continue
        return "done", 1.0, True, False, {}
