"""The scripts of a TPU VM slice, against a cloud that records, refuses and forgets."""

import os
import re
import shlex
import subprocess

import pytest
from fake_cloud import LAUNCH, FakeCloud

VERBS = ("create", "setup", "run", "follow", "stop", "resume", "delete")
OFFERED = {"match": "accelerator-types list", "out": "v5p-128\n"}
ABSENT = {"match": "tpu-vm describe", "error": "ERROR: NOT_FOUND: no such node", "code": 1}
NO_REQUEST = {"match": "queued-resources describe", "error": "NOT_FOUND: none", "code": 1}
KIND = {"match": "describe.*acceleratorType", "out": "v5p-128\n"}
READY = {"match": "tpu-vm describe", "out": "READY\n"}
ACTIVE = {"match": "is-active", "out": "active\n"}
INACTIVE = {"match": "is-active", "out": "inactive\n"}


@pytest.fixture
def cloud(tmp_path):
    return FakeCloud(tmp_path)


def once(rule):
    return {**rule, "times": 1}


def verbs(calls):
    """What was done, without names and flags."""
    found = []
    for call in calls:
        words = [word for word in call.split() if not word.startswith("-")]
        found.append(
            " ".join(words[3:5] if words[:3] == ["gcloud", "compute", "tpus"] else words[1:4])
        )
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_shows_every_command_and_calls_none(cloud, verb):
    dry = cloud.run(f"{verb}.sh", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert [call for call in cloud.calls() if "status --porcelain" not in call] == []
    assert re.search(r"^\+ gcloud ", dry.stderr, re.MULTILINE)


def test_a_dry_run_shows_what_a_run_does(cloud):
    cloud.answer(OFFERED, once(ABSENT), READY)
    shown = cloud.run("create.sh", "--dry-run").stderr
    assert cloud.run("create.sh").returncode == 0
    planned = [
        " ".join(shlex.split(line)[1:]) for line in shown.splitlines() if line.startswith("+")
    ]
    assert [call for call in cloud.calls() if call not in planned] == []
    assert cloud.changes() == [call for call in planned if " create " in call]


@pytest.mark.parametrize("verb", VERBS)
def test_missing_settings_and_wrong_arguments_end_at_once(cloud, verb):
    missing = cloud.run(f"{verb}.sh", PROJECT="")
    assert missing.returncode == 1
    assert "PROJECT is not set" in missing.stderr
    wrong = cloud.run(f"{verb}.sh", "--wet")
    assert wrong.returncode == 1
    assert "unknown argument --wet" in wrong.stderr
    injected = cloud.run(f"{verb}.sh", NAME="spade; reboot")
    assert injected.returncode == 1
    assert "characters that no name has" in injected.stderr
    for dry in (cloud.run(f"{verb}.sh", "--dry-run=1"), cloud.run(f"{verb}.sh", DRY_RUN="1")):
        assert dry.returncode == 1
        assert "--dry-run has no value" in dry.stderr
    assert cloud.calls() == []


@pytest.mark.parametrize(
    ("capacity", "request_"),
    [("on-demand", "tpu-vm create"), ("queued", "queued-resources create"),
     ("spot", "queued-resources create"), ("reserved", "queued-resources create")],
)  # fmt: skip
def test_create_rents_what_was_asked_for(cloud, capacity, request_):
    cloud.answer(
        OFFERED, once(ABSENT), once(NO_REQUEST),
        {"match": "queued-resources describe", "out": "WAITING_FOR_RESOURCES\n", "times": 2},
        {"match": "queued-resources describe", "out": "ACTIVE\n"}, READY,
    )  # fmt: skip
    done = cloud.run("create.sh", CAPACITY=capacity)
    assert done.returncode == 0, done.stderr
    [made] = [call for call in cloud.changes() if request_ in call]
    assert "--accelerator-type=v5p-128" in made
    assert "v2-alpha-tpuv5" in made
    assert ("--spot" in made) == (capacity == "spot")
    assert ("--reserved" in made) == (capacity == "reserved")


def test_create_twice_rents_once(cloud):
    cloud.answer(OFFERED, KIND, READY, {"match": "buckets describe", "out": "some-bucket\n"})
    again = cloud.run("create.sh")
    assert again.returncode == 0, again.stderr
    assert cloud.changes() == []
    cloud.answer(
        OFFERED, once(ABSENT), {"match": "queued-resources describe", "out": "ACTIVE\n"}, READY,
        {"match": "buckets describe", "out": "some-bucket\n"},
    )  # fmt: skip
    assert cloud.run("create.sh", CAPACITY="spot").returncode == 0
    assert cloud.changes() == []


# What the services answer, shortened.
REFUSALS = {
    "quota": ("RESOURCE_EXHAUSTED: Quota limit 'TPUV5PPerProject' exceeded", "quotas"),
    "capacity": ("{'code': 8, 'message': 'There is no more capacity in the zone'", "queued"),
    "taken": ("ALREADY_EXISTS: Resource 'nodes/spade' already exists", "another NAME"),
    "zone": ("Permission denied on 'locations/xx' (or it may not exist)", "locations list"),
    "api": ("Cloud TPU API has not been used in project 12 before", "services enable"),
    "login": ("You do not currently have an active account selected.", "gcloud auth login"),
    "rights": ("PERMISSION_DENIED: Permission 'tpu.nodes.create' denied", "docs/pod.md"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusals_come_with_reason_and_remedy(cloud, refusal):
    message, remedy = REFUSALS[refusal]
    cloud.answer(OFFERED, ABSENT, {"match": "tpu-vm create", "error": message, "code": 1})
    refused = cloud.run("create.sh")
    assert refused.returncode == 1
    assert "error: " in refused.stderr
    assert remedy in refused.stderr.partition("remedy:")[2]
    # The same where a question, not the request, meets it.
    cloud.answer({"match": "accelerator-types list", "error": message, "code": 1})
    refused = cloud.run("create.sh")
    assert refused.returncode == 1
    assert remedy in refused.stderr.partition("remedy:")[2]
    assert cloud.changes() == []


def test_a_zone_without_the_chips_is_found_before_anything_is_made(cloud):
    cloud.answer({"match": "accelerator-types list", "out": ""})
    refused = cloud.run("create.sh")
    assert "us-east5-a does not offer v5p-128" in refused.stderr
    assert cloud.changes() == []


def test_a_name_that_other_chips_have_is_taken(cloud):
    cloud.answer(OFFERED, {**KIND, "out": "v6e-8\n"}, READY)
    refused = cloud.run("create.sh")
    assert refused.returncode == 1
    assert "the name is taken: spade in us-east5-a is a v6e-8" in refused.stderr


def test_a_request_that_fails_is_no_slice(cloud):
    cloud.answer(
        OFFERED, ABSENT, once(NO_REQUEST), {"match": "queued-resources describe", "out": "FAILED\n"}
    )
    refused = cloud.run("create.sh", CAPACITY="queued")
    assert refused.returncode == 1
    assert "the request was not met: FAILED" in refused.stderr


def test_waiting_for_capacity_ends(cloud):
    cloud.answer(
        OFFERED, ABSENT, {"match": "queued-resources describe", "out": "WAITING_FOR_RESOURCES\n"}
    )
    refused = cloud.run("create.sh", CAPACITY="queued", WAIT_SECONDS="0")
    assert refused.returncode == 1
    assert "is still WAITING_FOR_RESOURCES" in refused.stderr


@pytest.mark.parametrize(("kind", "chips"), [("v5p-128", 64), ("v5litepod-16", 16), ("v6e-8", 8)])
def test_setup_reaches_every_host(cloud, kind, chips):
    cloud.answer(READY, INACTIVE)
    done = cloud.run("setup.sh", ACCELERATOR_TYPE=kind)
    assert done.returncode == 0, done.stderr
    steps = [call for call in cloud.changes() if call.startswith("gcloud")]
    assert verbs(steps) == ["tpu-vm scp", "tpu-vm ssh", "tpu-vm ssh"]
    assert all("--worker=all" in step for step in steps)
    assert steps[-1].endswith(f"devices.py {chips}")


def test_setup_leaves_a_run_alone(cloud):
    cloud.answer(READY, ACTIVE)
    refused = cloud.run("setup.sh")
    assert refused.returncode == 1
    assert "a run is under way" in refused.stderr
    assert cloud.changes() == []


def test_a_host_that_fails_is_not_taken_for_the_cloud(cloud):
    cloud.answer(READY, INACTIVE, {"match": "host/setup.sh", "error": "Quota of disk", "code": 1})
    refused = cloud.run("setup.sh")
    assert refused.returncode == 1
    assert "failed on a host" in refused.stderr


def test_run_starts_the_same_command_on_every_host(cloud):
    cloud.answer(READY, INACTIVE)
    flags = "--config.mesh.fsdp=64 --config.schedule.skills=('Optimization',)"
    done = cloud.run("run.sh", TRAIN_FLAGS=flags)
    assert done.returncode == 0, done.stderr
    [started] = cloud.changes()
    assert "--worker=all" in started
    words = shlex.split(started.partition("--command=")[2])
    assert "--distributed" in words
    assert words[words.index("--config=configs/games.py:30b") :] == [
        "--config=configs/games.py:30b", "--workdir=/mnt/spade/runs/games-30b",
        "--config.mesh.fsdp=64", "--config.schedule.skills=('Optimization',)",
    ]  # fmt: skip
    cloud.answer(READY, ACTIVE)
    assert cloud.run("run.sh").returncode == 0
    assert cloud.changes() == []


def test_a_host_without_the_bucket_starts_nothing(tmp_path):
    """Else the run would begin anew on the disk of a host that was started again."""
    for name, status in (("systemctl", 1), ("mountpoint", 1), ("systemd-run", 0)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}.called\nexit {status}\n")
        program.chmod(0o755)
    command = [LAUNCH / "host" / "run.sh", "spade-train", "/opt/spade-jax", "/mnt/spade", "--flag"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the bucket is not mounted at /mnt/spade" in done.stdout
    assert not (tmp_path / "systemd-run.called").exists()
    (tmp_path / "mountpoint").write_text("#!/bin/sh\n")
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    assert (tmp_path / "systemd-run.called").exists()


@pytest.mark.parametrize(
    ("state", "remedy"), [("", "create.sh"), ("PREEMPTED", "resume.sh"), ("CREATING", "wait")]
)
@pytest.mark.parametrize("verb", ["setup", "run", "follow", "stop"])
def test_verbs_that_need_a_slice_say_what_to_do_without(cloud, verb, state, remedy):
    cloud.answer({"match": "tpu-vm describe", "out": f"{state}\n"} if state else ABSENT)
    refused = cloud.run(f"{verb}.sh")
    assert refused.returncode == 1
    assert remedy in refused.stderr.partition("remedy:")[2]


def test_follow_can_choose_a_host(cloud):
    cloud.answer(READY)
    cloud.run("follow.sh", "--host=3")
    [followed] = cloud.changes()
    assert "--worker=3" in followed
    assert "journalctl --unit=spade-train" in followed


def test_delete_stops_first_and_twice_is_once(cloud):
    cloud.answer(READY, {"match": "queued-resources describe", "out": "ACTIVE\n"})
    done = cloud.run("delete.sh")
    assert done.returncode == 0, done.stderr
    assert verbs(cloud.changes()) == ["tpu-vm ssh", "queued-resources delete"]
    assert "systemctl stop" in cloud.changes()[0]
    cloud.answer(READY, NO_REQUEST)
    cloud.run("delete.sh")
    assert verbs(cloud.changes()) == ["tpu-vm ssh", "tpu-vm delete"]
    cloud.answer(ABSENT, NO_REQUEST)
    assert cloud.run("delete.sh").returncode == 0
    assert cloud.changes() == []
    assert not any("storage" in call for call in cloud.calls())


GONE = {"match": "tpu-vm describe", "out": "PREEMPTED\n"}


def test_resume_rents_sets_up_and_continues(cloud):
    cloud.answer(
        OFFERED,
        *[once(GONE)] * 2, once({"match": "queued-resources describe", "out": "SUSPENDED\n"}),
        once(ABSENT), once(NO_REQUEST),
        {"match": "queued-resources describe", "out": "ACTIVE\n"}, READY, INACTIVE,
        {"match": "buckets describe", "out": "some-bucket\n"},
    )  # fmt: skip
    done = cloud.run("resume.sh", CAPACITY="spot")
    assert done.returncode == 0, done.stderr
    assert verbs(call for call in cloud.changes() if call.startswith("gcloud")) == [
        "queued-resources delete", "queued-resources create",
        "tpu-vm scp", "tpu-vm ssh", "tpu-vm ssh", "tpu-vm ssh",
    ]  # fmt: skip


@pytest.mark.parametrize("last_seen", ["active", "failed"])
def test_watching_resumes_after_a_preemption_and_ends_with_the_run(cloud, last_seen):
    cloud.answer(
        OFFERED, NO_REQUEST, {"match": "buckets describe", "out": "some-bucket\n"},
        # resume and run.sh: READY twice, active; one look: READY, LAST_SEEN; then it is gone.
        *[once(READY)] * 2, once(ACTIVE), once(READY), once({**ACTIVE, "out": f"{last_seen}\n"}),
        *[once(GONE)] * 3,
        once(ABSENT), READY, once(INACTIVE), once(INACTIVE), once(ACTIVE), INACTIVE,
    )  # fmt: skip
    done = cloud.run("resume.sh", "--watch")
    assert done.returncode == 0, done.stderr
    assert "the run has ended" in done.stderr
    assert verbs(call for call in cloud.changes() if call.startswith("gcloud")) == [
        "tpu-vm delete", "tpu-vm create", "tpu-vm scp", "tpu-vm ssh", "tpu-vm ssh", "tpu-vm ssh",
    ]  # fmt: skip


def test_watching_does_not_restart_a_run_that_failed(cloud):
    cloud.answer(READY, once(ACTIVE), {"match": "is-active", "out": "failed\n"})
    done = cloud.run("resume.sh", "--watch")
    assert done.returncode == 1
    assert "the run failed" in done.stderr
    assert cloud.changes() == []


def test_every_verb_is_a_script_that_can_be_run():
    for script in [*LAUNCH.glob("*.sh"), *LAUNCH.glob("gke/*.sh"), *LAUNCH.glob("host/*.sh")]:
        library = script.name in ("common.sh", "settings.sh", "cluster.sh")
        assert bool(script.stat().st_mode & 0o111) != library, script
    assert {f"{verb}.sh" for verb in VERBS} <= {path.name for path in LAUNCH.glob("*.sh")}
