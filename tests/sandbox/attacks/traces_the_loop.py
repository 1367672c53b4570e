# Kind: interpreter
# Outcome: died raised timeout
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        def trace(frame, event, argument):
            raise SystemExit

        sys.settrace(trace)
        sys._getframe(1).f_trace = trace
        return "done", 1.0, True, False, {}
