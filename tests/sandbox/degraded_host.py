"""Run as a script: a host on a machine that refuses some system calls. Prints one JSON line.

Arguments: the tier to demand, 'own' or 'shared' namespaces, and the numbers of the system calls
that fail with EPERM, as in a container whose own seccomp profile blocks them.
"""

import asyncio
import ctypes
import json
import struct
import sys
import types

from spade_jax.sandbox.faults import EnvironmentFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.limits import InsufficientTierError
from spade_jax.sandbox.seccomp import Filter

SOURCE = """
import os, socket
class TryEnv:
    def reset(self, seed=None):
        return f"start {random.random()}", {}
    def step(self, action):
        exec(action)
        return "done", 1.0, True, False, {}
"""
ATTEMPTS = {
    "nothing": "pass",
    "socket": "socket.socket()",
    "fork": "os.fork()",
    "read": "open('/etc/passwd').read()",
    "write": "open('/tmp/spade-owned', 'w')",
    "signal": "os.kill(1, 0)",
    "loop": "while True: pass",
    "memory": "bytearray(1 << 32)",
    "environment": "assert not os.environ",
    "root": "assert os.getuid()",
}


def block(numbers: list[int]) -> None:
    code = [(0x20, 0, 0, 0)]
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    code.append((0x06, 0, 0, 0x7FFF0000))
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
    Filter(b"".join(struct.pack("HBBI", *each) for each in code)).load()


async def main(minimum: int, own_namespaces: bool) -> dict:
    settings = types.SimpleNamespace(
        minimum_tier=minimum,
        memory_mb=256,
        cpu_seconds=20,
        open_timeout=60.0,
        step_timeout=60.0,
        message_bytes=65536,
        instances=64,
        output_bytes=4096,
        folder_mb=0,
        own_namespaces=own_namespaces,
    )
    outcomes = {}
    async with EnvironmentHost(settings) as host:
        for name, attempt in ATTEMPTS.items():
            handle = await host.open(SOURCE)
            await host.reset(handle, 0)
            if name == "loop":
                host._instances[handle].timeout = 0.4
            try:
                await host.step(handle, attempt)
                outcomes[name] = "done"
            except EnvironmentFault as fault:
                outcomes[name] = fault.kind
            await host.close(handle)
        return {"tier": host.report.tier, "layers": dict(host.report.layers), "outcomes": outcomes}


if __name__ == "__main__":
    if sys.argv[3:]:
        block([int(number) for number in sys.argv[3:]])
    try:
        result = asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "own"))
    except InsufficientTierError as error:
        result = {"refused": str(error)}
    print(json.dumps(result))
