"""An allow-list of system calls, as a BPF program made by hand.

Written here because a maintained binding (libseccomp's, pyseccomp) needs a shared library that
TPU VM images and slim containers lack, while the filter itself is one linear list. Everything
that is not on the list fails with EPERM: no file can be opened but by a child with a private
folder, no socket made, no process or thread started, no signal sent, no memory made executable.
"""

import ctypes
import errno
import platform
import struct

PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
RET_KILL_PROCESS = 0x80000000
RET_ERRNO = 0x00050000
RET_ALLOW = 0x7FFF0000
LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
JUMP_BITS = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_THIRD_ARGUMENT = 0, 4, 32  # struct seccomp_data
PROT_EXEC = 4
X32_BIT = 0x40000000

# Audit architecture and system-call numbers (asm/unistd.h). Hot calls come first.
MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "read": 0, "write": 1, "munmap": 11, "brk": 12, "mremap": 25, "madvise": 28,
            "futex": 202, "clock_gettime": 228, "close": 3, "fstat": 5, "poll": 7, "lseek": 8,
            "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "select": 23,
            "sched_yield": 24, "nanosleep": 35, "getpid": 39, "exit": 60, "gettimeofday": 96,
            "getrusage": 98, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
            "getegid": 108, "getppid": 110, "sigaltstack": 131, "gettid": 186, "time": 201,
            "restart_syscall": 219, "clock_getres": 229, "clock_nanosleep": 230,
            "exit_group": 231, "pselect6": 270, "ppoll": 271, "getrandom": 318,
            "mmap": 9, "mprotect": 10,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "read": 63, "write": 64, "munmap": 215, "brk": 214, "mremap": 216, "madvise": 233,
            "futex": 98, "clock_gettime": 113, "close": 57, "fstat": 80, "lseek": 62,
            "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
            "sched_yield": 124, "nanosleep": 101, "getpid": 172, "exit": 93,
            "gettimeofday": 169, "getrusage": 165, "times": 153, "getuid": 174, "getgid": 176,
            "geteuid": 175, "getegid": 177, "getppid": 173, "sigaltstack": 132, "gettid": 178,
            "restart_syscall": 128, "clock_getres": 114, "clock_nanosleep": 115,
            "exit_group": 94, "pselect6": 72, "ppoll": 73, "getrandom": 278,
            "mmap": 222, "mprotect": 226,
        },
    ),
}  # fmt: skip
# What a child with a private folder may call beside; where, the other layers say.
FILE_CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2, "stat": 4, "lstat": 6, "pread64": 17, "pwrite64": 18, "access": 21, "fsync": 74,
        "ftruncate": 77, "getcwd": 79, "rename": 82, "mkdir": 83, "rmdir": 84, "unlink": 87,
        "getdents64": 217, "openat": 257, "mkdirat": 258, "newfstatat": 262, "unlinkat": 263,
        "renameat": 264, "faccessat": 269, "renameat2": 316, "statx": 332,
    },
    "aarch64": {
        "getcwd": 17, "mkdirat": 34, "unlinkat": 35, "renameat": 38, "ftruncate": 46,
        "faccessat": 48, "openat": 56, "getdents64": 61, "pread64": 67, "pwrite64": 68,
        "newfstatat": 79, "fsync": 82, "renameat2": 276, "statx": 291,
    },
}  # fmt: skip
# What a grader that limits programs by alarms may call beside: they reach its own process alone.
TIMER_CALLS = {"x86_64": {"alarm": 37, "setitimer": 38}, "aarch64": {"setitimer": 103}}
NO_EXECUTABLE = ("mmap", "mprotect")  # allowed unless their third argument has PROT_EXEC


def program(machine: str = "", files: bool = False, timers: bool = False) -> bytes | None:
    """The filter as an array of ``struct sock_filter``; None where the machine is unknown.

    With ``files`` it lets pass what a private folder is good for, with ``timers`` alarms.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        return None
    architecture, numbers = MACHINES[machine]
    plain = [number for name, number in numbers.items() if name not in NO_EXECUTABLE]
    plain += FILE_CALLS[machine].values() if files else []
    plain += TIMER_CALLS[machine].values() if timers else []
    guarded = [numbers[name] for name in NO_EXECUTABLE]
    code = [
        (LOAD_WORD, 0, 0, OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, RET_KILL_PROCESS),
        (LOAD_WORD, 0, 0, OFFSET_NUMBER),
        (JUMP_AT_LEAST, 0, 1, X32_BIT),
        (RETURN, 0, 0, RET_KILL_PROCESS),
    ]
    # After the comparisons: refuse, allow, then the look at the third argument.
    comparisons = len(plain) + len(guarded)
    for place, number in enumerate(plain):
        code.append((JUMP_EQUAL, comparisons - place, 0, number))
    for place, number in enumerate(guarded, start=len(plain)):
        code.append((JUMP_EQUAL, comparisons - place + 1, 0, number))
    code += [
        (RETURN, 0, 0, RET_ERRNO | errno.EPERM),
        (RETURN, 0, 0, RET_ALLOW),
        (LOAD_WORD, 0, 0, OFFSET_THIRD_ARGUMENT),
        (JUMP_BITS, 0, 1, PROT_EXEC),
        (RETURN, 0, 0, RET_ERRNO | errno.EPERM),
        (RETURN, 0, 0, RET_ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


class Filter:
    """The program in the form the kernel takes, made once and loaded by every child."""

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    def __init__(self, code: bytes):
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = self._Program(len(code) // 8, ctypes.addressof(self._code))
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def load(self) -> None:
        """Filters the calling thread for good. Needs no-new-privileges.

        Raises:
          OSError: the kernel has no seccomp filters.
        """
        if self._prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self._program), 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP) failed")
