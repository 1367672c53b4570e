"""What the script for a GPU host starts, seen by a Python that only tells."""

import os
import subprocess

from fake_cloud import LAUNCH

KEYS = {"SPADE_SGLANG_API_KEY": "k", "SPADE_SGLANG_ADMIN_KEY": "a"}
TELLS = """#!/bin/sh
echo "$@"
echo "raw=${SGLANG_RETURN_ORIGINAL_LOGPROB-unset} health=$SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
"""


def start(tmp_path, *arguments, **environment):
    told = tmp_path / "python3"
    told.write_text(TELLS)
    told.chmod(0o755)
    return subprocess.run(
        [LAUNCH / "host/sglang.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **environment},
    )


def test_flags_of_the_server_and_its_keys(tmp_path):
    more = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1", "PORT": "31000"}
    done = start(tmp_path, "folder", "--tensor-parallel-size=8", **KEYS, **more)
    assert done.returncode == 0, done.stderr
    command, kept = done.stdout.splitlines()
    assert command == (
        "-m sglang.launch_server --model-path=folder --host=0.0.0.0 --port=31000 --dtype=bfloat16 "
        "--api-key=k --admin-api-key=a --tensor-parallel-size=8"
    )
    assert kept == "raw=unset health=0"


def test_what_is_missing_is_named(tmp_path):
    assert "name a folder" in start(tmp_path, **KEYS).stderr
    for name in KEYS:
        others = {key: value for key, value in KEYS.items() if key != name}
        done = start(tmp_path, "folder", **others)
        assert done.returncode != 0
        assert name in done.stderr
