"""The child's side of a worker: answers requests about foreign code, and can do nothing else.

A backend (of a benchmark, of tasks) calls :func:`serve` as a program of its own, after importing
everything it needs. From then on the process has a memory limit, dies with its parent and, where
the kernel has seccomp filters, can open no file, make no socket and start no process. Deadlines are
the parent's (``workers.py``).
"""

import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from spade_jax.sandbox import enclosure, limits, seccomp, wire

MEMORY = 2 << 30  # bytes of address space
MESSAGE = 64 << 20  # bytes


def serve(functions: Mapping[str, Callable[..., Any]], programs: bool = False) -> None:
    """Answers ``[name, arguments]`` with ``[True, result]`` or ``[False, what was raised]``.

    Returns when the parent closes its end. What the functions print is dropped.

    Args:
      programs: they run what a model wrote, under alarms of theirs: without a filter of system
        calls the process ends before the first request.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    filtered = _confine(programs)
    if programs and not filtered:
        sys.exit("no filter of system calls")
    while (request := _read(requests)) is not None:
        name, arguments = request
        try:
            answer = [True, functions[name](*arguments)]
            message = wire.encode(answer, MESSAGE)
        except Exception as error:
            message = wire.encode([False, f"{type(error).__name__}: {error!s:.500}"], MESSAGE)
        answers.write(message)
        answers.flush()


def _read(stream: BinaryIO) -> Any:
    """The next request; None at the end."""
    header = stream.read(wire.HEADER.size)
    if len(header) < wire.HEADER.size:
        return None
    (length,) = wire.HEADER.unpack(header)
    payload = stream.read(length)
    return wire.decode(payload) if len(payload) == length else None


def _confine(timers: bool) -> bool:
    """Whether a filter of system calls is in place; where there is none, code is only foreign."""
    limits.die_with_parent()
    for kind, cap in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (cap, cap))
    code = seccomp.program(timers=timers)
    if code is None or enclosure.no_new_privileges():
        return False
    try:
        seccomp.Filter(code).load()
    except OSError:  # a kernel without filters
        return False
    return True
