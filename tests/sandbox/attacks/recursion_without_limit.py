# Kind: memory
# Outcome: died memory
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        sys.setrecursionlimit(10**9)

        def dive(items):
            return sorted([items], key=dive)

        dive([])
        return "done", 1.0, True, False, {}
