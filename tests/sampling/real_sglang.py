"""A real SGLang server on the CPU, installed where it is not: tests/README.md."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from spade_jax import cache

HERE = Path(__file__).parent / "sglang_cpu"
STARTING = 900  # seconds, most of them imports


class RealSGLang:
    """Serves the model of a folder; can be killed, and started again at the same address.

    ``flags`` come after, and so instead of, those of the tests.
    """

    def __init__(self, folder, log, flags=(), threads=1):
        self._folder, self._log = folder, log
        self._flags, self._threads = flags, threads
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self):
        """Returns when it answers."""
        environment = cache.folder("sglang_cpu")
        install = ["bash", str(HERE / "install.sh"), str(environment)]
        subprocess.run(install, check=True, timeout=1800)
        command = [
            *(environment / "bin/python", HERE / "server.py", "--model-path", self._folder),
            *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32"),
            *("--host", "127.0.0.1", "--port", self._port, "--skip-server-warmup"),
            *("--sleep-on-idle", "--max-total-tokens", 8192, "--max-running-requests", 16),
            *self._flags,
        ]
        quiet = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        quiet["OMP_NUM_THREADS"] = str(self._threads)
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdout=self._log.open("a"),
            stderr=subprocess.STDOUT,
            env={**os.environ, **quiet},
            start_new_session=True,
        )
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self):
        deadline = time.monotonic() + STARTING
        while not self._is_up():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(1)

    def _is_up(self):
        try:
            return call(self.url, "/model_info")[0] == 200
        except OSError:
            return False


def call(url, path, body=None):
    """Status and answer: JSON if it is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text
