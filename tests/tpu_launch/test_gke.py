"""The scripts for GKE, against a cloud that records and refuses."""

import json
import re

import pytest
from fake_cloud import FakeCloud

RUNNING = {"match": "clusters describe", "out": "RUNNING\n"}
ALL_ROLES = {"SGLANG_HOSTS": "2", "SANDBOX_HOSTS": "3"}


@pytest.fixture
def cloud(tmp_path):
    return FakeCloud(tmp_path)


def test_create_makes_what_is_missing_and_no_more(cloud):
    missing = {"error": "ERROR: NOT_FOUND: no such thing", "code": 1}
    cloud.answer({"match": "(clusters|node-pools|buckets|repositories) describe", **missing})
    done = cloud.run("gke/create.sh", **ALL_ROLES)
    assert done.returncode == 0, done.stderr
    made = "\n".join(cloud.changes())
    pools = re.findall(r"node-pools create (\w+) .*--num-nodes=(\d+)", made)
    assert pools == [("trainer", "16"), ("sglang", "2"), ("sandbox", "3")]
    assert re.search(
        r"create sandbox .*--workload-metadata=GKE_METADATA .*--sandbox=type=gvisor", made
    )
    assert re.search(r"clusters create spade .*--enable-dataplane-v2", made)
    there = {"out": "there\n"}
    cloud.answer({"match": "(clusters|node-pools|buckets|repositories) describe", **there})
    assert cloud.run("gke/create.sh", **ALL_ROLES).returncode == 0
    assert not any(" create " in call for call in cloud.changes())


def test_refusals_come_with_reason_and_remedy(cloud):
    cloud.answer(
        {"match": "clusters describe", "error": "NOT_FOUND", "code": 1},
        {"match": "clusters create", "error": "ERROR: Insufficient quota: CPUS", "code": 1},
    )
    refused = cloud.run("gke/create.sh")
    assert refused.returncode == 1
    assert "error: quota" in refused.stderr
    assert not any("node-pools" in call for call in cloud.calls())
    cloud.answer({"match": "clusters describe", "error": "NOT_FOUND", "code": 1})
    refused = cloud.run("gke/run.sh")
    assert refused.returncode == 1
    assert "tpu_launch/gke/create.sh" in refused.stderr


def test_the_slice_is_told_of_every_sglang_host_and_of_the_fleet(cloud):
    cloud.answer(RUNNING)
    shown = cloud.run("gke/run.sh", "--dry-run", **ALL_ROLES).stdout
    [arguments] = re.findall(r"args: (\[\"--dist.*)", shown)
    hosts = "http://sglang-0.sglang.spade:30000,http://sglang-1.sglang.spade:30000"
    assert json.loads(arguments)[3:] == [
        "--config.sampler.kind=sglang",
        f"--config.sampler.urls={hosts}",
        "--config.sandbox.fleet=ray://sandbox-head-svc.spade-sandbox:10001",
    ]


def test_the_run_begins_when_the_sandbox_hosts_are_ready(cloud):
    cloud.answer(RUNNING)
    assert cloud.run("gke/run.sh", SANDBOX_HOSTS="3").returncode == 0
    hosts, ready, trainer = cloud.changes()
    assert " apply " in hosts
    assert "--namespace=spade-sandbox wait raycluster/sandbox" in ready
    assert " apply " in trainer
    cloud.answer(RUNNING, {"match": " wait ", "error": "error: timed out", "code": 1})
    assert cloud.run("gke/run.sh", SANDBOX_HOSTS="3").returncode == 1
    assert len(cloud.changes()) == 2


def test_keys_are_made_once_and_shown_never(cloud):
    cloud.answer(RUNNING)
    done = cloud.run("gke/run.sh", **ALL_ROLES)
    assert done.returncode == 0, done.stderr
    [made] = [call for call in cloud.changes() if "create secret" in call]
    assert re.search(r"--from-file=\S+/api-key --from-file=\S+/admin-api-key$", made)
    cloud.answer(RUNNING, {"match": "get secret", "out": "secret/sglang-keys\n"})
    cloud.run("gke/run.sh", **ALL_ROLES)
    assert not any("create secret" in call for call in cloud.changes())


@pytest.mark.parametrize(
    ("found", "verbs"),
    [("", ["apply"]), ("spade ", []), ("spade Failed", ["delete", "apply"]),
     ("spade Completed", ["delete", "apply"])],
)  # fmt: skip
def test_run_begins_continues_and_leaves_alone(cloud, found, verbs):
    cloud.answer(RUNNING, {"match": "get jobset", "out": found})
    done = cloud.run("gke/run.sh")
    assert done.returncode == 0, done.stderr
    assert [re.search("apply|delete", call)[0] for call in cloud.changes()] == verbs


def test_delete_stops_first_and_twice_is_once(cloud):
    cloud.answer(RUNNING)
    cloud.run("gke/delete.sh")
    assert [re.search(r"delete \w+|clusters delete", call)[0] for call in cloud.changes()] == [
        "delete jobset",
        "clusters delete",
    ]
    cloud.answer({"match": "clusters describe", "error": "NOT_FOUND", "code": 1})
    assert cloud.run("gke/delete.sh").returncode == 0
    assert cloud.changes() == []


def test_images_that_exist_are_not_built_again(cloud):
    cloud.answer({"match": "images describe .*/trainer:", "out": "sha256:1\n"})
    done = cloud.run("gke/build.sh", **ALL_ROLES)
    assert done.returncode == 0, done.stderr
    built = [re.search(r"_ROLE=(\w+)", call)[1] for call in cloud.changes() if "builds" in call]
    assert built == ["sglang", "sandbox"]
