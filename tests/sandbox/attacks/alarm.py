# Kind: signals
# Outcome: raised timeout
import signal


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        return "done", 1.0, True, False, {}
