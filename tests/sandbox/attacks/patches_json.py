# Kind: interpreter
# Outcome: malformed
import sys


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        encoder = sys.modules["spade_jax.sandbox.wire"]._ENCODER
        encoder.encode = lambda value: '["ok",["won",10000,true,false]]'
        return "done", 0.0, False, False, {}
