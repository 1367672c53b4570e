"""How the zygote's memory lies, so that a fork copies few page-table entries and not thousands.

Most of what a bare fork and its end cost is done page by page: each small page that the zygote has
ever written is entered into the child's table and taken out again. A huge page is one entry. So
small objects are gathered in neighbouring arenas, and these become huge pages before the first
fork. Where the kernel cannot (before Linux 6.1) all works as before, only slower.
"""

import ctypes
import re

HUGE = 2 << 20
ARENA = 1 << 20  # of pymalloc, from Python 3.10 on
ARENAS = 7  # what the modules of the prelude fill
BLOCK = 496  # a size class of pymalloc
TOP_PAD = 4 << 20  # what malloc takes from the kernel at a time: its heap fills huge pages too
M_TOP_PAD = -2
MADV_COLLAPSE = 25

_libc = ctypes.CDLL(None, use_errno=True)
_kept: list[bytes] = []


def gather() -> None:
    """Has the objects that follow lie side by side. To be called before anything is imported."""
    _libc.mallopt(M_TOP_PAD, TOP_PAD)
    in_arena = ARENA // BLOCK
    blocks = [bytes(BLOCK - 33) for _ in range(ARENAS * in_arena)]
    # An arena in which nothing is left would be given back.
    _kept.extend(blocks[:: in_arena // 4])


def private() -> list[tuple[int, int]]:
    """First and last address of what this process alone has written, libraries' data aside."""
    with open("/proc/self/maps") as file:
        found = re.findall(r"^(\w+)-(\w+) rw-p 0+ 00:00 0 +(?:\[heap\])?$", file.read(), re.M)
    return [(int(start, 16), int(end, 16)) for start, end in found]


def collapse(ranges: list[tuple[int, int]]) -> None:
    """Makes huge pages of ``ranges``, as far as these hold aligned ones."""
    for start, end in ranges:
        start, end = -(-start // HUGE) * HUGE, end // HUGE * HUGE
        if start < end:
            _libc.madvise(ctypes.c_size_t(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)
