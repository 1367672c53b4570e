# Kind: channel
# Outcome: malformed
import os


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        reply = b'["fault","raised",7]'
        os.write(3, len(reply).to_bytes(4, "big") + reply)
        while True:
            pass
        return "done", 1.0, True, False, {}
