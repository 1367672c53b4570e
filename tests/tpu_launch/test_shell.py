"""shellcheck finds nothing in the scripts."""

import subprocess
import sys
from pathlib import Path

from fake_cloud import LAUNCH

SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def test_shellcheck_is_silent():
    scripts = sorted(LAUNCH.rglob("*.sh"))
    done = subprocess.run(
        [SHELLCHECK, "--external-sources", "--source-path=SCRIPTDIR", *scripts],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert scripts
    assert done.returncode == 0, done.stdout + done.stderr
