"""Tiers as reached by root and by an ordinary user, on machines that permit more or less."""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import pytest

import spade_jax
from spade_jax.sandbox.limits import TIERS, Report

NOBODY = 65534
UNSHARE, LANDLOCK = (272,), (444, 445, 446)
if platform.machine() == "aarch64":
    UNSHARE = (97,)
CONTAINED = {
    "nothing": "done",
    "socket": "raised",
    "fork": "raised",
    "read": "raised",
    "write": "raised",
    "signal": "raised",
    "loop": "timeout",
    "memory": "memory",
    "environment": "done",
    "root": "done",
}


@pytest.fixture(scope="module")
def readable_package():
    """The sandbox where any user can read it."""
    folder = pathlib.Path(tempfile.mkdtemp())
    source = pathlib.Path(spade_jax.__file__).parent
    shutil.copytree(source / "sandbox", folder / "spade_jax" / "sandbox")
    shutil.copy(source / "__init__.py", folder / "spade_jax")
    shutil.copy(pathlib.Path(__file__).parent / "degraded_host.py", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def interpreter_for(user: int) -> str:
    """A Python that ``user`` may execute, standard library included."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [name, "-S", "-c", "import sys, random; assert sys.version_info >= (3, 11)"]
        try:
            if subprocess.run(probe, user=user, group=user, extra_groups=[]).returncode == 0:
                return name
        except OSError:
            continue
    pytest.skip("no Python 3.11 or newer that an ordinary user may execute on this machine")


def outcome(folder, minimum=1, blocked=(), user=None, namespaces="shared"):
    command = [sys.executable, "-S"]
    extra = {}
    if user is not None and os.getuid() == 0:
        command[0] = interpreter_for(user)
        extra = {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(
        [*command, "degraded_host.py", str(minimum), namespaces, *map(str, blocked)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        **extra,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("user", [None, NOBODY])
@pytest.mark.parametrize(
    ("blocked", "highest"), [((), 4), (UNSHARE, 2), ((*UNSHARE, *LANDLOCK), 1)]
)
def test_attacks_fail_at_every_tier_from_one(readable_package, user, blocked, highest):
    result = outcome(readable_package, 1, blocked, user)
    assert result["outcomes"] == CONTAINED
    assert 1 <= result["tier"] <= highest
    # The report gives a reason exactly for the layers that are missing.
    for layer in TIERS[result["tier"]]:
        assert result["layers"][layer] == ""


@pytest.mark.parametrize("user", [None, NOBODY])
def test_attacks_fail_with_namespaces_of_their_own(readable_package, user):
    result = outcome(readable_package, 1, (), user, "own")
    assert result["outcomes"] == CONTAINED
    pid_namespace = result["layers"]["pid_namespace"]
    assert bool(result["layers"]["instance_namespaces"]) == bool(pid_namespace)


def test_below_the_minimum_it_refuses_and_says_what_is_missing(readable_package):
    refused = outcome(readable_package, 3, UNSHARE)["refused"]
    assert "sandbox tier 2 of 5" in refused
    missing = "missing mount_namespace, ipc_namespace, pid_namespace, network_namespace"
    assert f"{missing}, user_namespace: unshare: Operation not permitted\n" in refused
    for place in ("Docker  --cap-add SYS_ADMIN", "GKE     Standard:", "TPU VM  run as root"):
        assert f"\n    {place}" in refused


def test_each_layer_counts_for_its_tier():
    complete = {layer: "" for layers in TIERS for layer in layers}
    assert Report(complete).tier == len(TIERS) - 1
    for tier, layers in enumerate(TIERS):
        for layer in layers:
            assert Report(complete | {layer: "absent"}).tier == tier - 1
            untested = {name: "" for name in complete if name != layer}
            assert Report(untested).tier == tier - 1
