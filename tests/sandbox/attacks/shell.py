# Kind: processes
# Outcome: harmless
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        assert os.system("touch /tmp/spade-attack") != 0
        return "done", 1.0, True, False, {}
