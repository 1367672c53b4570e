"""The host: a healthy environment is played right, every misbehaviour is a typed fault."""

import asyncio
import contextlib
import os
import pathlib
import select
import signal
import time

import pytest
from sandbox_helpers import HEALTHY, check_healthy, descendants, hasty

from spade_jax import config
from spade_jax.sandbox import instance
from spade_jax.sandbox.faults import EnvironmentFault, HostFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.sandbox.limits import InsufficientTierError, Report

TEMPLATE = """
import os, sys, time, socket, threading, signal, ctypes, gc, json
class BadEnv:
    def reset(self, seed=None):
        return "start", {{}}
    def step(self, action):
        {step}
        return "end", 1.0, True, False, {{}}
"""


def bad_step(code: str) -> str:
    return TEMPLATE.format(step=code.replace("\n", "\n        "))


async def fault_of(call) -> EnvironmentFault:
    with pytest.raises(EnvironmentFault) as caught:
        await call
    return caught.value


def test_an_episode_is_played(sandboxed):
    async def body(host):
        handle = await host.open(HEALTHY, max_turns=3)
        first = await host.reset(handle, 7)
        assert await host.reset(handle, 8) != first
        assert await host.reset(handle, 7) == first
        result = await host.step(handle, "wrong")
        assert (result.observation, result.reward) == ("turn 1: wrong", 0.0)
        assert (result.terminated, result.truncated) == (False, False)
        (number,) = await host.solution(handle)
        result = await host.step(handle, number)
        assert (result.reward, result.terminated, result.truncated) == (1.0, True, False)
        observation, results = await host.play(handle, 7, ["a", "b", "c", "d"])
        assert observation == first
        assert [each.truncated for each in results] == [False, False, True]
        assert await host.tools(handle) == []
        await host.close(handle)
        await host.close(handle)
        with pytest.raises(HostFault, match="no environment is open"):
            await host.step(handle, "x")

    sandboxed(body)


def test_the_host_counts_turns_itself(sandboxed):
    source = bad_step("return 'more', 0.0, False, False, {}")

    async def body(host):
        handle = await host.open(source, max_turns=2)
        await host.reset(handle, 0)
        assert not (await host.step(handle, "x")).truncated
        assert (await host.step(handle, "x")).truncated
        await host.close(handle)

    sandboxed(body)


def test_tools_of_a_bare_class(sandboxed):
    source = bad_step("pass") + (
        "    def get_tools(self):\n        return [{'name': 'add'}]\n"
        "    def execute_tool(self, name, args):\n"
        "        return {'output': str(args['a'] + args['b']), 'returncode': 0}\n"
    )

    async def body(host):
        handle = await host.open(source)
        assert await host.tools(handle) == [{"name": "add"}]
        answer = await host.call(handle, "add", {"a": 1, "b": {"c": 2}["c"]})
        assert answer == {"output": "3", "returncode": 0}
        assert (await fault_of(host.call(handle, "add", {}))).kind == "raised"
        assert (await host.call(handle, "add", {"a": 2, "b": 2}))["output"] == "4"
        await host.close(handle)

    sandboxed(body)


def test_a_request_that_json_cannot_hold_is_a_fault(sandboxed):
    source = bad_step("pass") + (
        "    def execute_tool(self, name, args):\n        return {'output': name}\n"
    )

    async def body(host):
        fault = await fault_of(host.open(source + "# \ud800"))
        assert fault.kind == "malformed"
        assert "surrogate" in fault.reason
        handle = await host.open(source)
        for name, arguments in (("\ud800", {}), ("add", {"a": float("nan")}), ("add", {"a": {1}})):
            assert (await fault_of(host.call(handle, name, arguments))).kind == "malformed"
        assert await host.call(handle, "add", {}) == {"output": "add"}
        await host.close(handle)

    sandboxed(body)


STEPS = {
    "loops": ("while True: pass", "timeout"),
    "loops, catching all": ("while True:\n    try: time.sleep(9)\n    except BaseException: pass",
                            "timeout"),
    "allocates": ("x = bytearray(10**10)", "memory"),
    "allocates bit by bit": ("x = []\nwhile True: x.append('a' * 10**6)", ("memory", "timeout")),
    "a huge integer": ("x = 10 ** 10 ** 8", ("timeout", "memory")),
    "os._exit": ("os._exit(3)", "died"),
    "os.abort": ("os.abort()", ("died", "raised")),
    "sys.exit": ("sys.exit(0)", "raised"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "raised"),
    "an exception": ("raise ValueError('no')", "raised"),
    "an exception without str": ("class E(Exception):\n    def __str__(self): raise self\nraise E",
                                 "raised"),
    "fork": ("os.fork()", "raised"),
    "a fork bomb": ("while True:\n    try: os.fork()\n    except OSError: pass", "timeout"),
    "another program": ("os.posix_spawn('/bin/true', ['true'], {})", "raised"),
    "another program instead": ("os.execv('/bin/true', ['true'])", "raised"),
    "os.system": ("assert os.system('true') == 0", "raised"),
    "a thread": ("threading.Thread(target=time.sleep, args=(9,)).start()", "raised"),
    "a socket": ("socket.create_connection(('127.0.0.1', 22), 1)", "raised"),
    "a unix socket": ("socket.socket(socket.AF_UNIX)", "raised"),
    "a raw socket": ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "raised"),
    "reads a file": ("open('/etc/passwd')", "raised"),
    "lists a folder": ("os.listdir('/')", "raised"),
    "writes a file": ("open('/tmp/owned', 'w')", "raised"),
    "kills its parent": ("os.kill(os.getppid(), 9)", "raised"),
    "kills everyone": ("os.kill(-1, 9)", "raised"),
    "kills itself": ("os.kill(os.getpid(), 9)", "raised"),
    "a null pointer": ("ctypes.string_at(0)", "died"),
    "ctypes system": ("ctypes.CDLL(None)['system'](b'true') and exit(1)", "raised"),
    "endless recursion": ("def f(): f()\nf()", "raised"),
    "deep recursion": ("sys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)",
                       ("died", "memory", "timeout", "raised")),  # whichever limit is met first
    "closes its channel": ("os.close(3)", "died"),
    "writes to its channel": ("os.write(3, b'x' * 100)", ("malformed", "too_large")),
    "answers in advance": (
        "os.write(3, b'\\0\\0\\0\\x1a' + b'[\"ok\",[\"won\",1,true,false]]')", "malformed"),
    "announces four gigabytes": ("os.write(3, b'\\xff' * 4)", "too_large"),
    "a huge observation": ("return 'x' * 10**6, 0, False, False, {}", "too_large"),
    "a surrogate": ("return '\\ud800', 0, False, False, {}", "malformed"),
    "no tuple": ("return 'x'", "malformed"),
    "four values": ("return 'x', 0, False, {}", "malformed"),
    "bytes": ("return b'x', 0, False, False, {}", "malformed"),
    "an object": ("return object(), 0, False, False, {}", "malformed"),
    "text reward": ("return 'x', '1', False, False, {}", "malformed"),
    "None reward": ("return 'x', None, False, False, {}", "malformed"),
    "nan reward": ("return 'x', float('nan'), False, False, {}", "malformed"),
    "infinite reward": ("return 'x', float('inf'), False, False, {}", "malformed"),
    "enormous reward": ("return 'x', 10**6, False, False, {}", "malformed"),
    "integer flag": ("return 'x', 0, 1, False, {}", "malformed"),
    "None flag": ("return 'x', 0, False, None, {}", "malformed"),
}  # fmt: skip


def test_each_bad_step_is_its_own_fault(sandboxed):
    async def body(host):
        async def one(name, code, kinds):
            handle = await host.open(bad_step(code))
            await host.reset(handle, 0)
            if "timeout" in kinds:
                host._instances[handle].timeout = 0.4
            fault = await fault_of(host.step(handle, "x"))
            assert fault.kind in ((kinds,) if isinstance(kinds, str) else kinds), (name, fault)
            await host.close(handle)

        await asyncio.gather(*(one(name, *case) for name, case in STEPS.items()))
        await check_healthy(host)

    sandboxed(body)


HARMLESS = {
    "prints much": "for _ in range(64): print('x' * 2**20)",
    "prints to both outputs": "print('x' * 2**20); print('x' * 2**20, file=sys.stderr)",
    "prints a surrogate": "print('\\ud800')",
    "catches signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "collects rubbish": "gc.collect(); [id(each) for each in gc.get_objects()]",
    "hashes without OpenSSL": "import hashlib, uuid; hashlib.new('sha3_256', b'x').hexdigest()\n"
    "assert hashlib.sha256(b'').hexdigest()[:8] == 'e3b0c442'\n"
    "assert str(uuid.uuid5(uuid.NAMESPACE_DNS, 'x'))[14] == '5'",
    "looks at its environment": "assert not os.environ, os.environ",
}


def test_harmless_oddities_are_played(sandboxed):
    async def body(host):
        for name, code in HARMLESS.items():
            handle = await host.open(bad_step(code))
            await host.reset(handle, 0)
            assert (await host.step(handle, "x")).terminated, name
            await host.close(handle)
        await check_healthy(host)

    sandboxed(body)


def test_the_beginning_of_what_is_printed_is_kept(sandboxed):
    source = bad_step(
        "print('said', action); print('wrong', file=sys.stderr)\nos.write(2, b'\\xff raw')\n"
        "if action == 'crash': os._exit(1)\nif action == 'much': print('x' * 2**20)\n1 / 0"
    )
    said = "said {}\nwrong\n\ufffd raw"

    async def body(host):
        handle = await host.open(source)
        assert await host.output(handle) == ""
        assert (await fault_of(host.step(handle, "this"))).output == said.format("this")
        both = said.format("this") + said.format("much") + "x" * 2**20
        assert (await fault_of(host.step(handle, "much"))).output == both[:4096]
        assert (await fault_of(host.step(handle, "more"))).output == both[:4096]
        assert await host.output(handle) == both[:4096]
        await host.close(handle)
        other = await host.open(source)
        assert (await fault_of(host.step(other, "crash"))).output == said.format("crash")
        assert (await fault_of(host.step(other, "again"))).output == said.format("crash")
        await host.close(other)

    sandboxed(body, output_bytes=4096)


def test_output_does_not_outlast_its_instance(sandboxed):
    async def body(host):
        for _ in range(3):
            handle = await host.open(bad_step("print('mine')"))
            await host.step(handle, "x")
            assert await host.output(handle) == "mine\n"
            await host.close(handle)
            with pytest.raises(HostFault, match="no environment is open"):
                await host.output(handle)

    sandboxed(body)


LOADS = {
    "does not parse": ("class BadEnv(:", "syntax"),
    "null byte": ("class BadEnv: pass\0", "syntax"),
    "nested too deep": ("x = " + "-" * 20000 + "1", ("syntax", "memory")),
    "no class": ("x = 1", "missing"),
    "raises at import": ("1 / 0", "raised"),
    "exits at import": ("import os; os._exit(0)", "died"),
    "loops at import": ("while True: pass", "timeout"),
    "raises in the constructor": ("class BadEnv:\n    def __init__(self): 1 / 0", "raised"),
    "needs an argument": ("class BadEnv:\n    def __init__(self, x): pass", "raised"),
    "an unknown module": ("import numpy", "raised"),
    "too large": ("#" * 70000, "too_large"),
}


def test_each_bad_load_is_its_own_fault(sandboxed):
    async def body(host):
        async def one(name, source, kinds):
            fault = await fault_of(host.open(source))
            assert fault.kind in ((kinds,) if isinstance(kinds, str) else kinds), (name, fault)

        slow = {name for name, (_, kinds) in LOADS.items() if kinds == "timeout"}
        await asyncio.gather(*(one(name, *LOADS[name]) for name in set(LOADS) - slow))
        with hasty(host):
            await asyncio.gather(*(one(name, *LOADS[name]) for name in slow))
        await check_healthy(host)

    sandboxed(body)


def test_reasons_name_type_message_and_line(sandboxed):
    async def body(host):
        handle = await host.open(bad_step("raise ValueError('what it was')"))
        await host.reset(handle, 0)
        fault = await fault_of(host.step(handle, "x"))
        assert fault.reason == "line 7: ValueError: what it was"
        await host.close(handle)

    sandboxed(body)


def test_a_dead_instance_repeats_its_fault(sandboxed):
    async def body(host):
        handle = await host.open(bad_step("os._exit(1)"))
        await host.reset(handle, 0)
        first = await fault_of(host.step(handle, "x"))
        again = await fault_of(host.reset(handle, 0))
        assert (first.kind, first.reason) == (again.kind, again.reason)
        await host.close(handle)

    sandboxed(body)


def test_an_instance_survives_an_exception_of_its_environment(sandboxed):
    async def body(host):
        handle = await host.open(bad_step("if action == 'bad': raise ValueError"))
        await host.reset(handle, 0)
        await fault_of(host.step(handle, "bad"))
        assert (await host.step(handle, "good")).terminated
        await host.close(handle)

    sandboxed(body)


def test_rewards_are_clamped(sandboxed):
    async def body(host):
        handle = await host.open(bad_step("return 'x', float(action), True, False, {}"))
        await host.reset(handle, 0)
        rewards = [(await host.step(handle, text)).reward for text in ("0.25", "7", "-10", "1e-9")]
        assert rewards == [0.25, 1.0, -1.0, 1e-9]
        await host.close(handle)

    sandboxed(body)


def test_opens_beyond_the_cap_wait(sandboxed):
    async def body(host):
        handles = [await host.open(HEALTHY) for _ in range(2)]
        waiting = asyncio.create_task(host.open(HEALTHY))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await host.close(handles[0])
        await host.close(await waiting)
        await host.close(handles[1])

    sandboxed(body, instances=2)


def test_failed_opens_give_their_place_back(sandboxed):
    async def body(host):
        for _ in range(5):
            await fault_of(host.open("1 / 0"))
        await check_healthy(host)

    sandboxed(body, instances=1)


def test_a_cancelled_call_kills_the_child(sandboxed):
    async def body(host):
        handle = await host.open(bad_step("while True: pass"))
        await host.reset(handle, 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await host.step(handle, "x")
        assert (await fault_of(host.reset(handle, 0))).kind == "timeout"
        await host.close(handle)
        await check_healthy(host)

    sandboxed(body)


def test_an_answer_that_lies_ready_is_in_time(sandboxed):
    """Whatever else kept the loop busy for longer than the deadline is not the child's fault."""

    async def body(host):
        handle = await host.open(HEALTHY)
        child = host._instances[handle]
        child.timeout = 0.01
        call = asyncio.create_task(host.reset(handle, 3))
        await asyncio.sleep(0)
        assert select.select([child._stream], [], [], 60)[0]
        time.sleep(0.02)
        assert (await call).startswith("seed 3")
        await host.close(handle)

    sandboxed(body)


def test_a_zygote_that_makes_no_process_in_time_is_a_host_fault(sandboxed, monkeypatch):
    monkeypatch.setattr(instance, "FORK_SECONDS", 0.1)

    async def body(host):
        for pid in descendants():
            os.kill(pid, signal.SIGSTOP)
        opening = asyncio.create_task(host.open(HEALTHY))
        await asyncio.sleep(0.2)
        for pid in descendants():
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(HostFault, match="the zygote made no process"):
            await opening
        monkeypatch.undo()
        await check_healthy(host)

    sandboxed(body)


def test_processor_time_is_limited_over_all_calls(sandboxed):
    source = bad_step(
        "end = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"
        "return 'more', 0, False, False, {}"
    )

    async def body(host):
        handle = await host.open(source)
        await host.reset(handle, 0)

        async def many_steps():
            for _ in range(10):
                await host.step(handle, "x")

        fault = await fault_of(many_steps())
        assert (fault.kind, fault.reason) == ("timeout", "the process used up its processor time")
        await host.close(handle)

    sandboxed(body, cpu_seconds=1, step_timeout=20.0)


def test_one_call_at_a_time_on_an_instance(sandboxed):
    async def body(host):
        handle = await host.open(HEALTHY)
        first = asyncio.create_task(host.reset(handle, 0))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="busy"):
            await host.reset(handle, 1)
        await first
        await host.close(handle)

    sandboxed(body)


def test_hundreds_at_once(sandboxed):
    async def body(host):
        async def one(seed):
            handle = await host.open(HEALTHY)
            observation = await host.reset(handle, seed)
            await host.step(handle, "x")
            return handle, observation

        played = await asyncio.gather(*(one(seed) for seed in range(300)))
        assert len({observation for _, observation in played}) == 300
        await asyncio.gather(*(host.close(handle) for handle, _ in played))

    sandboxed(body)


def test_leaving_the_context_ends_open_instances(sandboxed):
    async def body(host):
        for _ in range(20):
            await host.open(HEALTHY)
        looping = await host.open(bad_step("while True: pass"))
        await host.reset(looping, 0)
        task = asyncio.create_task(host.step(looping, "x"))
        await asyncio.sleep(0.05)
        await host.aclose()
        with pytest.raises(HostFault):
            await task

    sandboxed(body)


def test_a_dead_zygote_is_a_host_fault_and_is_replaced(sandboxed):
    async def body(host):
        handle = await host.open(HEALTHY)
        busy = await host.open(bad_step("while True: pass"))
        await host.reset(busy, 0)
        task = asyncio.create_task(host.step(busy, "x"))
        await asyncio.sleep(0.05)
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):  # one may die of another's death
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostFault):
            await task
        with pytest.raises(HostFault):
            await host.reset(handle, 0)
        await host.close(handle)
        await host.close(busy)
        await check_healthy(host)

    sandboxed(body)


def test_a_machine_out_of_processes_is_a_host_fault(sandboxed):
    async def body(host):
        host.on_refused(1 + host._opened, "no such instance")  # news of the unknown are ignored
        opening = asyncio.create_task(host.open(HEALTHY))
        while host._opened == 0:
            await asyncio.sleep(0)
        host.on_refused(1, os.strerror(11))
        with pytest.raises(HostFault, match="no process could be made: Resource temporarily"):
            await opening
        await check_healthy(host)

    sandboxed(body)


def test_without_memory_the_kernel_ends_processes_of_the_sandbox_first(sandboxed):
    async def body(host):
        before = descendants()
        await host.open(HEALTHY)
        assert descendants() > before
        for pid in descendants():
            assert pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"

    sandboxed(body)


def test_the_minimum_tier_is_enforced():
    async def main():
        async with EnvironmentHost(config.Sandbox(minimum_tier=99)):
            pass

    before = descendants()
    with pytest.raises(InsufficientTierError, match="minimum_tier = 99"):
        asyncio.run(main())
    assert descendants() == before


def test_the_report_names_what_is_missing_and_the_remedy():
    report = Report({"no_new_privileges": "", "seccomp": "no filter for this machine"})
    assert report.tier == 0
    assert "missing seccomp: no filter for this machine\n    Docker  Linux with" in str(report)
