# Kind: channel
# Outcome: malformed
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        os.write(3, b"\x00\x00\x00\x1a" + b'["ok",["won",1,true,false]]')
        return "done", 1.0, True, False, {}
