"""The process that forks one child per environment instance, and kills and reaps them.

It is started with a fresh interpreter, loads what environments may import, encloses itself, tests
the enclosure and then only ever forks. It reads nothing that a child has written: a child's
socket is handed from the host to the child unread.
"""

import contextlib
import dataclasses
import functools
import gc
import heapq
import json
import os
import select
import signal
import socket
import sys

from spade_jax.sandbox import child, enclosure, limits, pages, prelude, seccomp, wire
from spade_jax.sandbox.commands import (
    COMMAND,
    EVENT,
    FORK_WITH_FOLDER,
    FORKED,
    KILL,
    REAPED,
    REFUSED,
    REPORT_BYTES,
)

CHILD_SOCKET = 3
# A game of ours, played in the zygote until caches are filled and bytecode has specialised: pages
# that are written here are not copied by every child.
WARM_UP_PLAYS = 20
WARM_UP = '''
class WarmUpEnv:
    """Nothing to win."""

    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        self.turn, self.number = 0, random.randint(1, 9)
        return f"{self.number} of {self.max_turns}: \\\\boxed{{x}}", {}

    def step(self, action):
        self.turn += 1
        match = re.search(r"\\\\boxed\\{(.*)\\}", action)
        right = match is not None and match.group(1) == str(self.number)
        return f"turn {self.turn}", 1.0 if right else 0.0, right, self.turn > 2, {}

    def solution(self):
        return [str(self.number)]
'''


@dataclasses.dataclass
class Child:
    """A living child: its instance and its place among the private uids."""

    instance: int
    slot: int


@dataclasses.dataclass(frozen=True)
class Confinement:
    """What each child is put into, as far as this machine permits.

    ``folder_rules`` replace ``rules`` for a child with a private folder. Where there may be such
    children, Landlock cannot be put around the zygote, and ``landlock`` has each child enter it.
    """

    caps: limits.Limits
    rules: seccomp.Filter | None
    folder_rules: seccomp.Filter | None
    landlock: bool
    uid_base: int | None
    namespaces: enclosure.InstanceNamespaces | None


class Zygote:
    """Serves one host over a socket that keeps message boundaries."""

    def __init__(self, control: socket.socket, confinement: Confinement):
        self._control = control
        self._confinement = confinement
        self._children: dict[int, Child] = {}  # by pid
        self._pids: dict[int, int] = {}  # by instance
        self._free_slots: list[int] = []
        self._pid = os.getpid()
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def run(self) -> None:
        """Until the host closes its end; no child is left alive."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._woken.fileno() in ready:
                self._drain()
            self._reap()
            if self._control.fileno() in ready and not self._obey():
                break
        for pid in self._children:
            kill(pid)
        while self._children:
            self._forget(os.wait()[0])

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _obey(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, COMMAND.size, 2)
        if not message:
            return False
        command, instance = COMMAND.unpack(message)
        if command != KILL:
            self._fork(instance, descriptors, command == FORK_WITH_FOLDER)
        elif instance in self._pids:
            kill(self._pids[instance])
        return True

    def _fork(self, instance: int, descriptors: list[int], folder: bool) -> None:
        slot = heapq.heappop(self._free_slots) if self._free_slots else len(self._children)
        try:
            if self._confinement.namespaces is not None:
                self._confinement.namespaces.before_fork()
            pid = os.fork()
        except OSError as error:  # the machine is out of memory or processes
            heapq.heappush(self._free_slots, slot)
            close(descriptors)
            self._control.send(EVENT.pack(REFUSED, instance, error.errno))
            return
        if pid == 0:
            self._become_child(descriptors[0], descriptors[1], slot, folder)
        close(descriptors)
        self._children[pid] = Child(instance, slot)
        self._pids[instance] = pid
        self._control.send(EVENT.pack(FORKED, instance, 0))

    def _become_child(self, stream: int, printed: int, slot: int, folder: bool) -> None:
        given = self._confinement
        try:
            # No one sends it SIGCHLD, so the zygote's handler may stay.
            signal.set_wakeup_fd(-1)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            os.dup2(stream, CHILD_SOCKET)
            os.closerange(CHILD_SOCKET + 1, 1 << 16)
            uid = None if given.uid_base is None else given.uid_base + slot
            parent = self._pid
            if given.namespaces is not None:
                given.namespaces.after_fork()
                parent = 0  # it is out of sight of the first process of a namespace
            if folder:
                enclosure.enter_folder(given.caps.folder, os.getuid() if uid is None else uid)
            if given.landlock:
                enclosure.enter_landlock(folder)
            limits.confine(given.caps, given.folder_rules if folder else given.rules, uid, parent)
            gc.enable()
            child.serve(CHILD_SOCKET, given.caps.message)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            gone = self._forget(pid)
            if gone is not None:
                self._control.send(EVENT.pack(REAPED, gone.instance, status))

    def _forget(self, pid: int) -> Child | None:
        gone = self._children.pop(pid, None)
        if gone is not None:
            del self._pids[gone.instance]
            heapq.heappush(self._free_slots, gone.slot)
        return gone


def close(descriptors: list[int]) -> None:
    """Closes what was handed on to a child."""
    for descriptor in descriptors:
        os.close(descriptor)


def kill(pid: int) -> None:
    """Ends a child and, where nothing kept it from making any, its process group."""
    os.kill(pid, signal.SIGKILL)
    # It is missing where the child was killed before it had made a session of its own.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def enclose(
    own_namespaces: bool, folder: int
) -> tuple[dict[str, str], enclosure.InstanceNamespaces | None]:
    """Puts this process into all layers that are shared.

    Returns layer -> '' or what is missing, and what gives children namespaces of their own, if
    asked for. Goes on in a child of the caller, the first process of the new pid namespace; the
    caller waits for it and ends with it.
    """
    layers = enclosure.enter_namespaces()
    inner = os.fork()
    if inner:
        os.closerange(CHILD_SOCKET, 1 << 16)
        _, status = os.waitpid(inner, 0)
        os._exit(0 if status == 0 else 1)
    limits.die_with_parent()
    namespaces = None
    layers["instance_namespaces"] = "not asked for" if not own_namespaces else "no pid namespace"
    if own_namespaces and not layers["pid_namespace"]:
        namespaces = enclosure.InstanceNamespaces()
        layers["instance_namespaces"] = limits.possible(namespaces.before_fork)
    layers["empty_root"] = (
        "no mount namespace" if layers["mount_namespace"] else enclosure.enter_empty_root()
    )
    layers["private_folder"] = "not asked for" if not folder else "no empty root"
    if folder and not layers["empty_root"]:
        enter = functools.partial(enclosure.enter_folder, folder, os.getuid())
        layers["private_folder"] = limits.possible(enter)
    layers["no_new_privileges"] = enclosure.no_new_privileges()
    layers["landlock"] = limits.possible(enclosure.enter_landlock)
    if layers["private_folder"] and not layers["landlock"]:
        enclosure.enter_landlock()
    return layers, namespaces


def warm_up(limit: int) -> None:
    """Does all that a child does first."""
    for _ in range(WARM_UP_PLAYS):
        instance = child.Instance()
        for request in (["open", WARM_UP, 3], ["reset", 1], ["step", "\\boxed{1}"], ["solution"]):
            decoder = wire.Decoder(limit)
            message = decoder.feed(wire.encode(request, limit))
            assert message is not None
            child.answer(instance, message[0], limit)


def filters() -> tuple[seccomp.Filter | None, seccomp.Filter | None]:
    """System calls of a child without and with a private folder; None on an unknown machine."""
    plain, files = seccomp.program(), seccomp.program(files=True)
    if plain is None or files is None:
        return None, None
    return seccomp.Filter(plain), seccomp.Filter(files)


def main(descriptor: int, settings: str) -> None:
    """Entry point of the fresh interpreter; ``settings`` is JSON made by the host."""
    values = json.loads(settings)
    instances = values.pop("instances")
    own_namespaces = values.pop("own_namespaces")
    caps = limits.Limits(**values)
    sys.path.clear()
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert prelude.LOADED
    control = socket.socket(fileno=descriptor)
    uid_base = limits.private_uid_base(instances)
    limits.end_first_without_memory()
    limits.die_with_parent()
    memory = pages.private()
    layers, namespaces = enclose(own_namespaces, caps.folder)
    if namespaces is not None and not layers["instance_namespaces"]:
        layers["instance_namespaces"] = limits.possible(namespaces.after_fork)
    if layers["instance_namespaces"]:
        namespaces = None
    rules, folder_rules = filters()
    layers["seccomp"] = limits.possible(rules.load) if rules else "no filter for this machine"
    if layers["seccomp"]:
        rules = folder_rules = None
    layers["private_uid"] = "not root"
    if uid_base is not None:
        layers["private_uid"] = limits.possible(functools.partial(limits.become, uid_base))
    if layers["private_uid"]:
        uid_base = None
    limits.confine_for_good(caps)
    child.keep_output()
    warm_up(caps.message)
    gc.collect()
    gc.disable()
    gc.freeze()
    layers |= limits.self_test(caps, rules, uid_base)
    control.send(json.dumps(layers).encode()[:REPORT_BYTES])
    os.dup2(0, 2)  # standard error was kept for a failure up to here
    pages.collapse(memory)
    landlock = not layers["private_folder"] and not layers["landlock"]
    Zygote(control, Confinement(caps, rules, folder_rules, landlock, uid_base, namespaces)).run()
