# Kind: channel
# Outcome: raised
import socket


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        socket.socket(fileno=3).sendmsg([b"x"], [(1, 1, b"\0\0\0\0")])
        return "done", 1.0, True, False, {}
