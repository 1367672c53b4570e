"""What each child gives up before it sees a byte of foreign code, and the test that it has.

``confine`` is called in the child, right after the fork; ``self_test`` tries, from a child
confined in the same way, what must be impossible; ``Report`` turns the outcome into a tier.
"""

import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping

from spade_jax.sandbox import enclosure, seccomp

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
CAPABILITY_VERSION_3 = 0x20080522
PRIVATE_UID_BASES = (0x60000000, 30000)  # the second for hosts that map 65536 ids

DESCRIPTORS = 16

# Looked up and built once: doing it in each child costs more than the calls.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _capset = _libc.prctl, _libc.capset
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


@dataclasses.dataclass(frozen=True)
class Limits:
    """Caps of one child: address space in bytes, processor time in seconds, message in bytes,
    and its folder in bytes, if it asks for one.
    """

    memory: int
    cpu_seconds: int
    message: int
    folder: int


def private_uid_base(instances: int) -> int | None:
    """First of ``instances`` uids that no one else uses; None where uids cannot be changed."""
    if os.geteuid() != 0:
        return None
    with open("/proc/self/uid_map") as file:
        inside, _, length = map(int, file.readline().split())
    for base in PRIVATE_UID_BASES:
        if inside <= base and base + instances <= inside + length:
            return base
    return None


def confine(limits: Limits, rules: seccomp.Filter | None, uid: int | None, parent: int) -> None:
    """Turns this freshly forked process into one that can only compute and speak on its socket.

    Raises:
      OSError: a layer that the zygote counts on could not be applied; the child must not go on.
    """
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if uid is not None:
        become(uid)
    if _capset(_CAPABILITY_HEADER, _NO_CAPABILITIES):
        raise OSError(ctypes.get_errno(), "capset failed")
    # After the change of uid, which clears both.
    die_with_parent()
    if _prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
    if os.getppid() != parent:
        os._exit(1)
    if rules is not None:
        rules.load()


def become(uid: int) -> None:
    """Gives up the present user for one that owns nothing."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def possible(action: Callable[[], object]) -> str:
    """Tries a layer in a child of its own. '' or the reason why it cannot be had."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.write(writer, b"+")
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return "" if answer == "+" else answer or "the process died"


def confine_for_good(limits: Limits) -> None:
    """The caps that the zygote can bear itself; its children inherit them."""
    for kind, cap in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_FSIZE, limits.folder),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (cap, cap))


def end_first_without_memory() -> None:
    """When the machine runs out of memory the kernel ends this process and its children, the
    largest first, before any that are not of the sandbox; anyone may ask for that."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _start_process() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def _open_new_file() -> None:
    for folder in ("/tmp", "/dev/shm", "/", os.curdir):
        try:
            os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
        except OSError:
            continue
        return
    raise OSError("no folder takes a file")


def _attempts(limits: Limits) -> dict[str, Callable[[], object]]:
    return {
        "no_network": socket.socket,
        "no_process": _start_process,
        "no_reading": lambda: os.close(os.open("/proc/self/status", os.O_RDONLY)),
        "no_writing": _open_new_file,
        "no_signals": lambda: os.kill(os.getppid(), 0),
        "memory_limit": lambda: mmap.mmap(-1, limits.memory).close(),
    }


FILE_ATTEMPTS = ("no_reading", "no_writing")


def self_test(limits: Limits, rules: seccomp.Filter | None, uid: int | None) -> dict[str, str]:
    """Tries the forbidden from confined children.

    The file attempts are made a second time without seccomp, so that the layers below it are
    seen to hold alone.

    Returns:
      attempt -> '' if it failed as it must, else what went wrong.
    """
    found = _try(limits, rules, uid, tuple(_attempts(limits)), "")
    return found | _try(limits, None, uid, FILE_ATTEMPTS, "_without_seccomp")


def _try(
    limits: Limits,
    rules: seccomp.Filter | None,
    uid: int | None,
    names: tuple[str, ...],
    suffix: str,
) -> dict[str, str]:
    found = {name + suffix: "the test did not finish" for name in names}
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            confine(limits, rules, uid, parent)
            for name in names:
                try:
                    _attempts(limits)[name]()
                    found[name + suffix] = "the attempt succeeded"
                except OSError:
                    found[name + suffix] = ""
            os.write(writer, json.dumps(found).encode())
        except OSError as error:
            os.write(writer, json.dumps(dict.fromkeys(found, str(error))).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return found | (json.loads(answer) if answer else {})


# What each tier adds to the one before. docs/sandbox.md says what each means for an attacker.
TIERS: tuple[tuple[str, ...], ...] = (
    (),
    ("no_new_privileges", "seccomp", "no_network", "no_process", "no_reading", "no_writing",
     "no_signals", "memory_limit"),
    ("no_reading_without_seccomp", "no_writing_without_seccomp"),
    ("mount_namespace", "empty_root", "ipc_namespace", "pid_namespace", "network_namespace"),
    ("private_uid",),
    ("instance_namespaces",),
)  # fmt: skip
# How to get what is missing, where the policy is run.
NAMESPACES_ON = {
    "Docker": "--cap-add SYS_ADMIN --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined",
    "GKE": "Standard: securityContext with seccompProfile.type Unconfined and capabilities.add "
    "[SYS_ADMIN]; Autopilot and gVisor: not to be had, lower sandbox.minimum_tier",
    "TPU VM": "run as root, or sysctl kernel.unprivileged_userns_clone=1 "
    "(Ubuntu 24.04: kernel.apparmor_restrict_unprivileged_userns=0)",
}
KERNEL_ON = {
    "Docker": "a host with Linux 5.13 or newer and landlock among its LSMs",
    "GKE": "a node image with Linux 5.13 or newer (COS 97), without gVisor",
    "TPU VM": "a v2-alpha or newer image, whose kernel has it",
}
REMEDIES: dict[str, dict[str, str]] = {
    "seccomp": dict.fromkeys(
        ("Docker", "GKE", "TPU VM"), "Linux with CONFIG_SECCOMP_FILTER on x86_64 or aarch64"
    ),
    "landlock": KERNEL_ON,
    "no_reading_without_seccomp": KERNEL_ON,
    "no_writing_without_seccomp": KERNEL_ON,
    "private_uid": {
        "Docker": "run as root in the container, the default (no --user, no rootless)",
        "GKE": "securityContext.runAsUser 0 with capabilities.add [SETUID, SETGID, KILL]",
        "TPU VM": "sudo",
    },
    "instance_namespaces": dict.fromkeys(
        ("Docker", "GKE", "TPU VM"), "sandbox.own_namespaces = True, above tier 3"
    ),
    "private_folder": dict.fromkeys(
        ("Docker", "GKE", "TPU VM"), "sandbox.folder_mb above 0, at tier 3"
    ),
} | dict.fromkeys((*enclosure.NAMESPACES, "user_namespace", "empty_root"), NAMESPACES_ON)


class InsufficientTierError(RuntimeError):
    """The machine does not reach the isolation tier that the config demands."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Outcome of the self-test. ``layers``: layer or attempt -> '' if in place, else the reason."""

    layers: Mapping[str, str]

    @property
    def tier(self) -> int:
        """The highest tier all of whose layers, and those of the tiers below, are in place."""
        for tier, layers in enumerate(TIERS):
            if any(self.layers.get(layer, "not tested") for layer in layers):
                return tier - 1
        return len(TIERS) - 1

    def __str__(self) -> str:
        """The tier, and a table of what is missing and how to get it on each platform."""
        missing: dict[tuple[str, ...], list[str]] = {}
        for layer, reason in self.layers.items():
            if reason:
                remedies = REMEDIES.get(layer, {})
                lines = tuple(f"    {place:<8}{remedy}" for place, remedy in remedies.items())
                missing.setdefault((f": {reason}", *lines), []).append(layer)
        tables = [
            "\n".join((f"  missing {', '.join(layers)}{first}", *lines))
            for (first, *lines), layers in missing.items()
        ]
        return "\n".join((f"sandbox tier {self.tier} of {len(TIERS) - 1}", *tables))

    def require(self, minimum: int) -> None:
        """Raises InsufficientTierError below ``minimum``."""
        if self.tier < minimum:
            raise InsufficientTierError(
                f"{self}\nconfig.sandbox.minimum_tier = {minimum} is not reached: model-written "
                "code is not run here. Add what is missing, or lower the setting knowingly"
            )
