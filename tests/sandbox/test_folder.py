"""The private folder: room of its own for an instance that is opened with one, and nothing else."""

import asyncio

import pytest
from sandbox_helpers import HEALTHY, check_healthy

from spade_jax.sandbox.faults import EnvironmentFault, HostFault

WORKER = """
import os, socket, ctypes


class WorkerEnv:
    def reset(self, seed=None):
        return os.getcwd(), {}

    def step(self, action):
        found = {}
        exec(action, globals(), found)
        return repr(found.get("found")), 0.0, False, False, {}
"""
PLAYED = [
    ("open('notes', 'w').write('one'); found = open('notes').read()", "'one'"),
    ("os.mkdir('deep'); os.rename('notes', 'deep/notes'); found = os.listdir('deep')", "['notes']"),
    ("os.remove('deep/notes'); os.rmdir('deep'); found = os.listdir('.')", "[]"),
    ("open('long', 'wb').truncate(1 << 19); found = os.stat('long').st_size", str(1 << 19)),
]
REFUSED = {
    "open('/etc/passwd')": "No such file",
    "open('/proc/self/status')": "No such file",
    "os.listdir('/')": "Permission denied",
    "os.listdir('..')": "Permission denied",
    "open('../beside', 'w')": "Read-only",
    "os.mkdir('/tmp')": "Read-only",
    "os.symlink('/', 'root')": "not permitted",
    "os.link('long', 'other')": "not permitted",
    "os.mkfifo('pipe')": "not permitted",
    "os.chmod('long', 0o777)": "not permitted",
    "os.execv('long', ['long'])": "not permitted",
    "os.chroot('.')": "not permitted",
    "socket.socket()": "not permitted",
    "os.fork()": "not permitted",
    "open('large', 'wb').write(bytes(3 << 20))": "File too large",
    "[open(str(n), 'wb').write(bytes(1 << 20)) for n in range(3)]": "No space left",
    "[open(str(n), 'w').close() for n in range(5000)]": "No space left",
    "[open('long') for n in range(50)][99]": "Too many open files",
}


async def folders(host) -> bool:
    """False, after seeing the refusal, where the machine gives no private folder."""
    reason = host.report.layers["private_folder"]
    if reason:
        with pytest.raises(HostFault, match="no private folder can be had"):
            await host.open(WORKER, folder=True)
    return not reason


def test_a_folder_is_used_and_kept_to(sandboxed):
    async def body(host):
        if not await folders(host):
            return
        handle = await host.open(WORKER, folder=True)
        await host.reset(handle, 0)
        for action, expected in PLAYED:
            assert (await host.step(handle, action)).observation == expected
        for action, reason in REFUSED.items():
            with pytest.raises(EnvironmentFault) as caught:
                await host.step(handle, action)
            assert caught.value.kind == "raised", action
            assert reason in caught.value.reason, action
        await host.close(handle)
        await check_healthy(host)

    sandboxed(body, folder_mb=2)


def test_folders_are_private_and_end_with_their_instance(sandboxed):
    async def body(host):
        if not await folders(host):
            return
        listing = "found = sorted(os.listdir('.'))"
        first, second = [await host.open(WORKER, folder=True) for _ in range(2)]
        await host.step(first, "open('mine', 'w').write('x')")
        assert (await host.step(second, listing)).observation == "[]"
        await host.step(second, "open('other', 'w').write('y')")
        assert (await host.step(first, listing)).observation == "['mine']"
        await host.close(first)
        await host.close(second)
        third = await host.open(WORKER, folder=True)
        assert (await host.step(third, listing)).observation == "[]"
        await host.close(third)

    sandboxed(body, folder_mb=2)


def test_who_does_not_ask_has_no_folder(sandboxed):
    async def body(host):
        if not await folders(host):
            return
        asked, plain = await host.open(WORKER, folder=True), await host.open(WORKER)
        for action in ("open('x', 'w')", "os.listdir('/folder')", "os.chdir('/folder')"):
            with pytest.raises(EnvironmentFault, match="not permitted"):
                await host.step(plain, action)
        await host.close(asked)
        await host.close(plain)

    sandboxed(body, folder_mb=2)


def test_without_the_setting_no_folder_is_given(sandboxed):
    async def body(host):
        with pytest.raises(HostFault, match="no private folder can be had: not asked for"):
            await host.open(HEALTHY, folder=True)
        await asyncio.gather(*(check_healthy(host) for _ in range(3)))

    sandboxed(body, instances=1)


def test_folders_within_namespaces_of_their_own(sandboxed):
    async def body(host):
        if await folders(host):
            handle = await host.open(WORKER, folder=True)
            assert (await host.step(handle, PLAYED[0][0])).observation == PLAYED[0][1]
            await host.close(handle)

    sandboxed(body, folder_mb=2, own_namespaces=True)
