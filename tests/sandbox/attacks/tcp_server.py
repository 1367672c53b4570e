# Kind: network
# Outcome: raised PermissionError
import socket


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        socket.create_server(("127.0.0.1", 0))
        return "done", 1.0, True, False, {}
