# Kind: processor
# Outcome: timeout
import signal
import time


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                continue
        while True:
            time.sleep(1)
        return "done", 1.0, True, False, {}
