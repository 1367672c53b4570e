"""Manifests as Kubernetes, JobSet and KubeRay take them, and what hosts of foreign code may not."""

import copy
import json
import re
import string

import kubernetes_validate
import pytest
import yaml
from fake_cloud import LAUNCH
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

KUBERNETES = "1.37"
VALUES = {
    "NAME": "spade", "BUCKET": "some-bucket", "IMAGES": "registry/spade", "TAG": "0123",
    "TPU_HOSTS": "16", "TPU_CHIPS": "4", "TPU_LABEL": "tpu-v5p-slice", "TPU_TOPOLOGY": "4x4x4",
    "TRAIN_ARGUMENTS": json.dumps(["--config=configs/games.py:30b", "--config.a=(\"b\", 'c')"]),
    "SGLANG_HOSTS": "2", "SGLANG_MODEL": "Qwen/Qwen3-4B", "GPU_TYPE": "nvidia-h100-80gb",
    "GPUS": "8", "SANDBOX_HOSTS": "3", "SANDBOX_CPUS": "28", "SANDBOX_MEMORY": "84Gi",
}  # fmt: skip
# The fields of ray.io/v1 that we use, with their types, after KubeRay's raycluster_types.go.
RAY_GROUP = {"rayStartParams": dict, "template": dict}
RAY_HEAD = {**RAY_GROUP, "serviceType": str}
RAY_WORKERS = {
    **RAY_GROUP,
    "groupName": str,
    "replicas": int,
    "minReplicas": int,
    "maxReplicas": int,
}


def load(name):
    text = (LAUNCH / "gke" / "manifests" / f"{name}.yaml").read_text()
    return list(yaml.safe_load_all(string.Template(text).substitute(VALUES)))


def everything():
    return [each for name in ("namespaces", "trainer", "sglang", "sandbox") for each in load(name)]


def check(resource):
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def pod_template(template):
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {}, "template": template}


def check_job_set(job_set):
    read = JobsetV1alpha2JobSet.from_dict(copy.deepcopy(job_set))
    assert read.to_dict() == job_set  # a field that the API lacks is not read
    for job in job_set["spec"]["replicatedJobs"]:
        check({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, **job["template"]})


def check_ray_cluster(cluster):
    head, *workers = ray_groups(cluster)
    assert set(cluster["spec"]) == {"headGroupSpec", "workerGroupSpecs"}
    for group, fields in [(head, RAY_HEAD), *((each, RAY_WORKERS) for each in workers)]:
        assert {name: type(value) for name, value in group.items()} == fields
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        check(pod_template(group["template"]))


def ray_groups(cluster):
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


CHECKS = {"JobSet": check_job_set, "RayCluster": check_ray_cluster}


def check_all(resources):
    for resource in resources:
        CHECKS.get(resource["kind"], check)(resource)


@pytest.mark.parametrize("name", ["namespaces", "trainer", "sglang", "sandbox"])
def test_the_published_schemas_accept_every_resource(name):
    check_all(load(name))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("trainer", "maxRestarts:", "maxRestart:"), ("trainer", "parallelism: ", "parallelism: x"),
     ("trainer", "restartPolicy:", "restartPolice:"), ("sglang", "serviceName:", "service:"),
     ("sandbox", "minReplicas:", "minimum:"), ("sandbox", "runAsNonRoot: true", "runAsNonRoot: 7"),
     ("sandbox", "num-cpus: \"0\"", "num-cpus: 0"), ("namespaces", "labels:", "label:")],
)  # fmt: skip
def test_the_schemas_refuse_slips(name, old, new, monkeypatch):
    text = (LAUNCH / "gke" / "manifests" / f"{name}.yaml").read_text()
    assert old in text
    resources = yaml.safe_load_all(string.Template(text.replace(old, new)).substitute(VALUES))
    with pytest.raises((AssertionError, ValueError, kubernetes_validate.ValidationError)):
        check_all(resources)


def test_arguments_arrive_as_they_were_given():
    [job_set] = load("trainer")
    [job] = job_set["spec"]["replicatedJobs"]
    [container] = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == json.loads(VALUES["TRAIN_ARGUMENTS"])


# What a pod that runs model-written code must have, by path; a path may lead through a list.
POD = {
    "runtimeClassName": "gvisor",
    "serviceAccountName": "nobody",
    "automountServiceAccountToken": False,
    "securityContext.runAsNonRoot": True,
    "securityContext.seccompProfile.type": "RuntimeDefault",
    "containers.securityContext.allowPrivilegeEscalation": False,
    "containers.securityContext.readOnlyRootFilesystem": True,
    "containers.securityContext.capabilities.drop": ["ALL"],
}
NEVER = ("hostNetwork", "hostPID", "hostIPC", "hostPath", "privileged", "secretKeyRef", "csi",
         "hostPort", "projected", "secret", "add")  # fmt: skip


def at(value, path):
    """Every value at a dotted path."""
    if isinstance(value, list):
        return [found for each in value for found in at(each, path)]
    if not path:
        return [value]
    name, _, rest = path.partition(".")
    below = value.get(name) if isinstance(value, dict) else None
    if not rest:
        return [below]
    return at(below, rest) if below is not None else [None]


def names(value):
    if isinstance(value, dict):
        return set(value).union(*map(names, value.values()))
    return set().union(*map(names, value)) if isinstance(value, list) else set()


def violations(resources):
    """Every rule of isolation that these resources of the sandbox break."""
    found = []
    [cluster] = [each for each in resources if each["kind"] == "RayCluster"]
    for group in ray_groups(cluster):
        spec = group["template"]["spec"]
        found += [path for path, wanted in POD.items() if any(v != wanted for v in at(spec, path))]
        found += sorted(names(spec) & set(NEVER))
        if any(limits is None for limits in at(spec, "containers.resources.limits")):
            found.append("limits")
    policies = [each["spec"] for each in resources if each["kind"] == "NetworkPolicy"]
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if closed not in policies:
        found.append("default deny")
    for rule in [rule for policy in policies for rule in policy.get("egress", [])]:
        peers = rule.get("to") or [{}]
        # No address outside the cluster, so neither the metadata server's.
        if any("podSelector" not in peer or "ipBlock" in peer for peer in peers):
            found.append("egress")
    namespaces = {each["metadata"].get("namespace") for each in resources}
    if namespaces != {"spade-sandbox"}:
        found.append("namespace")
    return found


def test_hosts_of_foreign_code_are_isolated():
    assert violations(load("sandbox")) == []
    spaces = {each["metadata"]["name"]: each for each in load("namespaces")}
    level = spaces["spade-sandbox"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "restricted"
    assert spaces["nobody"]["automountServiceAccountToken"] is False
    assert "annotations" not in spaces["nobody"]["metadata"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("runtimeClassName: gvisor", "runtimeClassName: runc"),
     ("serviceAccountName: nobody", "serviceAccountName: spade"),
     ("automountServiceAccountToken: false", "automountServiceAccountToken: true"),
     ("          automountServiceAccountToken: false\n", ""),
     ("runAsNonRoot: true", "runAsNonRoot: false"),
     ("enableServiceLinks: false", "hostNetwork: true"),
     ("allowPrivilegeEscalation: false", "privileged: true"),
     ("drop: [ALL]", "drop: [NET_RAW]"),
     ("drop: [ALL]", "drop: [ALL]\n                add: [SYS_ADMIN]"),
     ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
     ("emptyDir:\n                sizeLimit: 8Gi", "hostPath:\n                path: /"),
     ("podSelector: {}", "podSelector:\n    matchLabels: {app: other}"),
     ("    - to:\n", "    - to:\n        - ipBlock: {cidr: 0.0.0.0/0}\n"),
     ("  egress:\n", "  egress:\n    - {}\n"),
     ("namespace: spade-sandbox", "namespace: spade")],
)  # fmt: skip
def test_each_weakening_is_found(old, new):
    text = (LAUNCH / "gke" / "manifests" / "sandbox.yaml").read_text()
    assert old in text
    weakened = string.Template(text.replace(old, new, 1)).substitute(VALUES)
    assert violations(list(yaml.safe_load_all(weakened)))


def test_no_pod_is_privileged_and_keys_come_from_a_secret():
    for resource in everything():
        assert not names(resource) & {
            "hostNetwork",
            "hostPID",
            "hostPath",
            "privileged",
            "stringData",
        }
    text = "".join(path.read_text() for path in LAUNCH.rglob("*") if path.is_file())
    assert not re.search(r"BEGIN [A-Z ]*PRIVATE KEY|hf_[A-Za-z0-9]{20}|AIza[A-Za-z0-9_-]{30}", text)


def test_every_setting_of_a_manifest_is_given():
    given = set(re.findall(r"(\w+)=", (LAUNCH / "gke" / "cluster.sh").read_text()))
    for path in (LAUNCH / "gke" / "manifests").glob("*.yaml"):
        used = set(string.Template(path.read_text()).get_identifiers())
        assert used <= given & set(VALUES) | {"TRAIN_ARGUMENTS"}, path
