"""What an episode's process costs at least: the zygote's modules, but no sandbox.

Run by sandbox.py in the interpreter and with the environment of a zygote. Forks children that do
nothing, and children that compile, construct and reset, from a process that has loaded and warmed
up what a zygote has. No layer, no message, no host: what is left is the kernel's and Python's.
Prints the processor seconds of each of the two, and of a full one the page faults, as JSON.
"""

import gc
import json
import os
import resource
import sys
from collections.abc import Callable

from spade_jax.sandbox import child, pages, zygote

LIMIT = 65536


def used() -> tuple[float, int]:
    """Processor seconds of this process and its reaped children; page faults of the children."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both), both[1].ru_minflt


def forks(count: int, work: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds and page faults of a child that does ``work``, its end included."""
    seconds, faults = used()
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    late_seconds, late_faults = used()
    return (late_seconds - seconds) / count, (late_faults - faults) / count


def main() -> None:
    """``sys.argv``: the number of forks. The source of the environment comes on standard input."""
    source, count = sys.stdin.read(), int(sys.argv[1])
    zygote.warm_up(LIMIT)
    gc.collect()
    gc.freeze()
    pages.collapse(pages.private())

    def episode() -> None:
        instance = child.Instance()
        for request in (["open", source, None], ["reset", 1]):
            child.answer(instance, request, LIMIT)

    bare, _ = forks(count, lambda: None)
    full, faults = forks(count, episode)
    print(json.dumps({"bare": bare, "episode": full, "faults": faults}))


if __name__ == "__main__":
    main()
