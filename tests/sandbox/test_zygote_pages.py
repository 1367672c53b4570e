"""The zygote's heap: gathered, made of huge pages, and the same as before."""

import ctypes
import mmap
import os
import subprocess
import sys

import pytest

from spade_jax.sandbox import pages

# In a fresh process: what is gathered decides where all later objects lie.
PROGRAM = """
from spade_jax.sandbox import pages
pages.gather()
objects = [str(number) * 3 for number in range(40000)]
ranges = pages.private()
inside = sum(any(start <= id(each) < end for start, end in ranges) for each in objects)
widest = max(ranges, key=lambda each: each[1] - each[0])
together = sum(widest[0] <= id(each) < widest[1] for each in objects)
pages.collapse(ranges)
assert objects == [str(number) * 3 for number in range(40000)]
with open("/proc/self/smaps_rollup") as file:
    huge = next(line.split()[1] for line in file if line.startswith("AnonHugePages"))
print(inside, together, huge)
"""


def can_collapse() -> bool:
    """Whether this kernel makes a huge page when asked (Linux 6.1)."""
    with mmap.mmap(-1, 2 * pages.HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"x" * len(memory))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        try:
            memory.madvise(pages.MADV_COLLAPSE, -address % pages.HUGE, pages.HUGE)
        except OSError:
            return False
    return True


def test_the_heap_lies_together_and_keeps_its_content():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    inside, together, huge = map(int, done.stdout.split())
    assert inside == 40000
    assert together > 30000  # some fill holes of arenas that were there before
    if not can_collapse():
        pytest.skip("this kernel makes no huge pages on request: Linux 6.1 or newer")
    assert huge >= pages.HUGE >> 10
