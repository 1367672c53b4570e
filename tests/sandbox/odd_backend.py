"""A worker's module that does what it should not."""

import os
import socket
import time

from spade_jax.sandbox import worker


def echo(value):
    print("nobody reads this")
    return value


def hang():
    while True:
        pass


def die():
    os._exit(3)


def fill():
    return len(bytearray(1 << 40))


def reach():
    """What the process can still do of what it must not."""
    able = []
    for name, attempt in (
        ("open", lambda: open("/etc/hostname").close()),
        ("socket", lambda: socket.socket().close()),
        ("fork", lambda: os.fork() or os._exit(0)),
    ):
        try:
            attempt()
        except OSError:
            continue
        able.append(name)
    return able


def surroundings():
    return [time.tzname[0], sorted(os.environ)]


if __name__ == "__main__":
    functions = (echo, hang, die, fill, reach, surroundings)
    worker.serve({function.__name__: function for function in functions})
