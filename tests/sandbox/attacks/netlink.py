# Kind: network
# Outcome: raised PermissionError
import socket


class AttackEnv:
    def reset(self, seed=None):
        return "start", {}

    def step(self, action):
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
        return "done", 1.0, True, False, {}
