"""Worker processes for what is foreign, under deadlines: benchmarks' checkers, tasks."""

import asyncio
import contextlib
import os
import sys
from typing import Any

from spade_jax.sandbox import wire
from spade_jax.sandbox.worker import MESSAGE

ENVIRONMENT = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""What a worker is given of this process's environment; no secrets."""


class Fault(RuntimeError):
    """A worker raised, was late or died; the message says which."""


class Workers:
    """A pool of processes that run one module (``python -m module``, see ``worker.serve``).

    A request is a function of its arguments alone, so any process can serve it, and one that is
    late or dead is replaced. An asynchronous context manager: leaving it ends every process.

    Args:
      count: processes, each started when it is first needed; 0 = one a core.
      deadline: seconds of one request, a process's start among them.
      once: end a process after one request, where that runs code which may change it.
    """

    def __init__(self, module: str, count: int = 0, deadline: float = 30.0, once: bool = False):
        self._module, self._deadline, self._once = module, deadline, once
        self._free: asyncio.LifoQueue[asyncio.subprocess.Process | None] = asyncio.LifoQueue()
        self._running: set[asyncio.subprocess.Process] = set()
        for _ in range(count or os.cpu_count() or 1):
            self._free.put_nowait(None)

    async def __aenter__(self) -> "Workers":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every process."""
        for process in list(self._running):
            await self._end(process)

    async def run(self, name: str, *arguments: Any, deadline: float | None = None) -> Any:
        """What the module's function ``name`` returns for these JSON values.

        Args:
          deadline: seconds of this request, if others than usual.

        Raises:
          Fault: it raised, took longer than the deadline, or ended the process.
        """
        message = wire.encode([name, list(arguments)], MESSAGE)
        seconds = self._deadline if deadline is None else deadline
        process = await self._free.get()
        try:
            if process is None:
                process = await self._start()
            try:
                async with asyncio.timeout(seconds):
                    done, value = await self._ask(process, message)
            except BaseException:
                dead, process = process, None
                await self._end(dead)
                raise
            if self._once:
                dead, process = process, None
                await self._end(dead)
        except TimeoutError as error:
            raise Fault(f"{name}: no answer within {seconds:g} s") from error
        except (OSError, asyncio.IncompleteReadError, wire.WireError) as error:
            raise Fault(f"{name}: the worker ended ({error})") from error
        finally:
            self._free.put_nowait(process)
        if not done:
            raise Fault(f"{name}: {value}")
        return value

    async def _ask(self, process: asyncio.subprocess.Process, message: bytes) -> tuple[bool, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(message)
        await process.stdin.drain()
        (length,) = wire.HEADER.unpack(await process.stdout.readexactly(wire.HEADER.size))
        if length > MESSAGE:
            raise wire.OversizedError(f"{length} bytes")
        done, value = wire.decode(await process.stdout.readexactly(length))
        return done, value

    async def _start(self) -> asyncio.subprocess.Process:
        environment = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The same everywhere: no local time zone, no salt in hashes.
            env=environment | {"TZ": "UTC0", "PYTHONHASHSEED": "0"},
        )
        self._running.add(process)
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._running.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
