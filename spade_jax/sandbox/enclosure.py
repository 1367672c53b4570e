"""What is put once around the zygote and inherited by every child: namespaces, an empty root
and Landlock. Each returns why it could not be had rather than raising, for the self-test to say.
"""

import ctypes
import os
import platform

NAMESPACES = {
    "mount_namespace": 0x00020000,
    "ipc_namespace": 0x08000000,
    "pid_namespace": 0x20000000,
    "network_namespace": 0x40000000,
}
NEW_USER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# The same numbers on every machine.
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
# In a folder: write, read, list, remove and make files and folders, move between them, truncate.
FOLDER_RIGHTS = sum(1 << bit for bit in (1, 2, 3, 4, 5, 7, 8, 13, 14))
FOLDER = "/folder"
FOLDER_INODES = 1024
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _failed(what: str) -> str:
    return f"{what}: {os.strerror(ctypes.get_errno())}"


def no_new_privileges() -> str:
    """Set-uid programs and file capabilities give nothing from here on. '' or the reason."""
    return _failed("prctl") if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) else ""


def enter_namespaces() -> dict[str, str]:
    """Moves this process out of the host's namespaces; the pid namespace takes the next fork.

    As root the user namespace stays, so that children can still be given uids of their own; as
    an ordinary user one is made, which is what permits the others.

    Returns:
      layer name -> '' or the reason why it is missing; 'user_namespace' only where one is needed.
    """
    uid, gid = os.getuid(), os.getgid()
    missing: dict[str, str] = {}
    if _libc.unshare(NAMESPACES["mount_namespace"]) == 0:
        missing["mount_namespace"] = ""
    elif _libc.unshare(NEW_USER | NAMESPACES["mount_namespace"]) == 0:
        missing["mount_namespace"] = missing["user_namespace"] = ""
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    else:
        reason = _failed("unshare")
        return dict.fromkeys([*NAMESPACES, "user_namespace"], reason)
    for layer, flag in NAMESPACES.items():
        if layer != "mount_namespace":
            missing[layer] = _failed("unshare") if _libc.unshare(flag) else ""
    return missing


def enter_empty_root() -> str:
    """Swaps the file system for one that holds nothing but an empty folder, read-only. '' or the
    reason.

    Needs a mount namespace of its own.
    """
    call = PIVOT_ROOT.get(platform.machine())
    if call is None:
        return f"pivot_root is not known on {platform.machine()}"
    if _libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        return _failed("mount private")
    place = b"/tmp"
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if _libc.mount(b"none", place, b"tmpfs", flags, b"size=4k,nr_inodes=2,mode=555"):
        return _failed("mount tmpfs")
    os.chdir(place)
    if _libc.syscall(call, b".", b"."):
        return _failed("pivot_root")
    if _libc.umount2(b".", MNT_DETACH):
        return _failed("umount")
    os.chdir("/")
    os.mkdir(FOLDER)
    if _libc.mount(None, b"/", None, MS_REMOUNT | MS_RDONLY | flags, None):
        return _failed("remount read-only")
    return ""


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("file_access", ctypes.c_uint64),
        ("network_access", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def enter_folder(size: int, uid: int) -> None:
    """Moves this process into an empty folder of ``size`` bytes that it alone sees and may use.

    The folder lives in a mount namespace of its own and is gone with the process. Needs an empty
    root.

    Raises:
      OSError: it may not mount.
    """
    if _libc.unshare(NAMESPACES["mount_namespace"]):
        raise OSError(ctypes.get_errno(), "unshare of the mount namespace failed")
    options = f"size={size},nr_inodes={FOLDER_INODES},mode=700,uid={uid},gid={uid}".encode()
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if _libc.mount(b"none", FOLDER.encode(), b"tmpfs", flags, options):
        raise OSError(ctypes.get_errno(), "mount of the private folder failed")
    os.chdir(FOLDER)


def enter_landlock(folder: bool = False) -> None:
    """Denies every file operation, and TCP, abstract sockets and outside signals where the kernel
    can; with ``folder``, files below the working directory are left. Needs no-new-privileges.

    The ruleset handles all access rights of the kernel's ABI; what no rule grants is denied.

    Raises:
      OSError: the kernel has no Landlock.
    """
    abi = _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if abi < 1:
        raise OSError(ctypes.get_errno(), "landlock is missing")
    file_rights = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    rules = _Ruleset((1 << file_rights) - 1, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    descriptor = _libc.syscall(
        LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset failed")
    failed = _allow_working_directory(descriptor, rules.file_access) if folder else 0
    failed = failed or _libc.syscall(LANDLOCK_RESTRICT, descriptor, ctypes.c_uint32(0))
    number = ctypes.get_errno()
    os.close(descriptor)
    if failed:
        raise OSError(number, "landlock refused its rules")


def _allow_working_directory(ruleset: int, handled: int) -> int:
    place = os.open(".", os.O_PATH)
    rule = _PathBeneath(FOLDER_RIGHTS & handled, place)
    kind, no_flags = LANDLOCK_RULE_PATH_BENEATH, ctypes.c_uint32(0)
    failed = _libc.syscall(LANDLOCK_ADD_RULE, ruleset, kind, ctypes.byref(rule), no_flags)
    os.close(place)
    return failed


class InstanceNamespaces:
    """Namespaces that each child has for itself, inside those of the zygote.

    Made in the zygote while /proc is still in sight.
    """

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def before_fork(self) -> None:
        """Makes the next child of this process the first of a new pid namespace."""
        # A second unshare is permitted only from the process's own pid namespace.
        if _libc.setns(self._home, NAMESPACES["pid_namespace"]):
            raise OSError(ctypes.get_errno(), "setns failed")
        if _libc.unshare(NAMESPACES["pid_namespace"]):
            raise OSError(ctypes.get_errno(), "unshare of the pid namespace failed")

    def after_fork(self) -> None:
        """Moves the child into a network, a mount table and queues that no one else has."""
        flags = sum(flag for name, flag in NAMESPACES.items() if name != "pid_namespace")
        if _libc.unshare(flags):
            raise OSError(ctypes.get_errno(), "unshare failed")
