# Kind: network
# Outcome: raised PermissionError
import socket


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        socket.socket(40, socket.SOCK_STREAM)
        return "done", 1.0, True, False, {}
