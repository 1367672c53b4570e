"""The real gcloud, where there is one, parses every command that the scripts show."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from fake_cloud import LAUNCH

SCRIPTS = [
    *(f"{verb}.sh" for verb in ("create", "setup", "run", "follow", "resume")),
    *(f"gke/{verb}.sh" for verb in ("create", "build", "delete")),
]


def commands(script, **settings):
    environment = {**os.environ, "PROJECT": "some-project", "BUCKET": "some-bucket", **settings}
    done = subprocess.run(
        [LAUNCH / script, "--dry-run"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return re.findall(r"^\+ (gcloud .*)", done.stderr, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs the Google Cloud CLI")
def test_gcloud_knows_every_command_and_flag(tmp_path):
    shown = set()
    for script in SCRIPTS:
        shown |= set(commands(script, SGLANG_HOSTS="2", SANDBOX_HOSTS="2"))
    shown |= set(commands("create.sh", CAPACITY="spot", SERVICE_ACCOUNT="a@b.iam"))
    shown |= set(commands("create.sh", CAPACITY="reserved"))
    # Nobody is logged in: what gcloud cannot parse it refuses before it says so.
    environment = {**os.environ, "CLOUDSDK_CONFIG": str(tmp_path)}
    for command in sorted(shown):
        done = subprocess.run(
            shlex.split(command), env=environment, capture_output=True, text=True, check=False
        )
        assert "active account" in done.stderr, (command, done.stderr)
