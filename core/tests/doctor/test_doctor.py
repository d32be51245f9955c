"""What `rlt doctor` finds in records of clusters: good ones, and ones with one fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from doctor.node_kinds import NODE_KINDS

from rlt_api.schema.crd import build_job_crd, build_runtime_crd
from rlt_core.doctor.examine import examine, has_error
from rlt_core.doctor.facts import ClusterFacts, Reading, reduce_node, reduce_pod
from rlt_core.doctor.line import RIGHTS, Line, State
from rlt_core.job import Manifest
from rlt_core.shards import Shard, choose_shard

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OF_NODES = ("accelerators", "device plugin", "gpu labels", "driver", "fabric", "attachments", "free gpus")


def read(*items: Manifest) -> Reading:
    return Reading(items)


def deployment(name: str, *, arguments: tuple[str, ...] = (), available: int = 1, version: str = "0.1.0") -> Manifest:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/version": version}
    container = {"image": f"registry.example.com/{name}:{version}", "args": list(arguments)}
    return {
        "metadata": {"name": name, "namespace": "rlt-system", "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"availableReplicas": available},
    }


def ray_crd(**spec: Any) -> Manifest:
    schema = {"properties": {"spec": {"properties": spec}}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def webhook(**more: Any) -> Manifest:
    client = {"caBundle": "Q0E=", "service": {"name": "rlt-operator-webhook", "namespace": "rlt-system"}}
    hook = {"clientConfig": client, "rules": [{"apiGroups": ["rlt.dev"]}], "failurePolicy": "Fail", **more}
    return {"metadata": {"name": "rlt-operator"}, "webhooks": [hook]}


def volume_claim(phase: str = "Bound", mode: str = "ReadWriteMany") -> Manifest:
    return {
        "metadata": {"name": "rlt-runs"},
        "spec": {"accessModes": [mode], "storageClassName": "efs"},
        "status": {"phase": phase, "capacity": {"storage": "4Ti"}},
    }


def storage_class(provisioner: str, *, default: bool = False) -> Manifest:
    annotations = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return {"metadata": {"name": "shared", "annotations": annotations}, "provisioner": provisioner}


def quota(**used: str) -> Manifest:
    hard = dict.fromkeys(used, "8")
    return {"metadata": {"name": "team"}, "status": {"hard": hard, "used": used}}


def nodes(kind: str) -> Reading:
    return Reading(tuple(map(reduce_node, NODE_KINDS[kind])))


SLICE = {
    "metadata": {"labels": {"kubernetes.io/service-name": "rlt-operator-webhook"}},
    "endpoints": [{"conditions": {"ready": True}}],
}
GOOD = ClusterFacts(
    namespace="team-a",
    client_version="0.1.0",
    now=NOW,
    server_version="v1.36.0",
    kuberay_crd=read(ray_crd(upgradeStrategy={})),
    job_crd=read(build_job_crd()),
    runtime_crd=read(build_runtime_crd()),
    deployments=read(
        deployment("kuberay-operator"),
        deployment("rlt-operator", arguments=("--network-policy=rlt-system", "--client-cidr=10.0.0.1/32")),
    ),
    leases=read({"metadata": {"namespace": "rlt-system"}, "spec": {"renewTime": NOW.isoformat()}}),
    webhooks=read(webhook()),
    endpoint_slices=read(SLICE),
    nodes=nodes("hgx-h100"),
    storage_classes=read(storage_class("efs.csi.aws.com", default=True)),
    volume_claims=read(volume_claim()),
    runtimes=read({"metadata": {"name": "h100"}}),
    local_queues=Reading(installed=False),
    attachments=Reading(installed=False),
    service_account=read({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]}),
    daemon_sets=read({"metadata": {"name": "cilium"}}),
)


def problems(facts: ClusterFacts) -> list[Line]:
    """The lines to act on. What no request shows is always one."""
    return [line for line in examine(facts) if line.state != State.OK and line.topic != "inside pods"]


def test_a_complete_cluster_has_no_problem() -> None:
    assert problems(GOOD) == []
    assert not has_error(examine(GOOD))
    assert {line.topic for line in examine(GOOD)} > {"kubernetes", "kuberay", "webhook", "driver", "fabric", "quota"}


OK = [("accelerators", "ok"), ("gpu labels", "ok"), ("driver", "ok"), ("free gpus", "ok"), ("fabric", "ok")]


@pytest.mark.parametrize(
    ("kind", "expected", "part"),
    [
        ("hgx-h100", OK, "infiniband (rdma/hca_shared_devices_a: 8). On 2 nodes: node-1, node-2."),
        ("gke-a3-mega", [*OK[:2], ("driver", "unknown"), *OK[3:]], "tcpxo"),
        ("eks-p5", OK, "efa (vpc.amazonaws.com/efa: 32)"),
        ("eks-p5-without-efa-plugin", [*OK[:4], ("fabric", "warning")], "EFA device plugin"),
        ("aks-nd-h100", OK, "infiniband (rdma/ib: 8)"),
        ("oke-h100", OK, "roce. On 2 nodes"),
        ("coreweave-h100", OK, "infiniband (rdma/ib: 1)"),
        ("l4", OK, "1 x nvidia.com/gpu (L4) on 2 nodes"),
        ("a100-old-driver", [*OK[:2], ("driver", "error"), *OK[3:]], "needs R580; the driver is 550.127.05"),
        ("mi300x", OK, "8 x amd.com/gpu (MI300X)"),
        ("mi355x", OK, "roce (amd.com/nic: 8)"),
        ("cpu", [("accelerators", "warning")], "jobs run on CPUs"),
        ("dra-alone", [("device plugin", "error")], "a DRA driver offers its GPUs as ResourceSlices"),
    ],
)
def test_each_kind_of_node(kind: str, expected: list[tuple[str, str]], part: str) -> None:
    found = [line for line in examine(replace(GOOD, nodes=nodes(kind))) if line.topic in OF_NODES]
    assert [(line.topic, str(line.state)) for line in found] == expected
    assert any(part in line.message for line in found), found


OLD_CRD = {**build_job_crd(), "spec": {"versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": {}}}]}}
PULL = {"message": "Back-off pulling image x", "involvedObject": {"name": "a"}, "lastTimestamp": "2026-01-01T00:00:00Z"}
INACTIVE = {"conditions": [{"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}]}
FAULTS: dict[str, tuple[Mapping[str, Any], str, str, str]] = {
    "old Kubernetes": ({"server_version": "v1.29.9-eks-1"}, "kubernetes", "error", "older than 1.30"),
    "no KubeRay": ({"kuberay_crd": Reading()}, "kuberay", "error", "not installed"),
    "old KubeRay": ({"kuberay_crd": read(ray_crd(suspend={}))}, "kuberay", "warning", "1.3 or older"),
    "KubeRay without v1": ({"kuberay_crd": read({"spec": {"versions": []}})}, "kuberay", "error", "does not serve v1"),
    "no rlt": ({"job_crd": Reading()}, "rltrainingjobs", "error", "not installed"),
    "old CRD": ({"job_crd": read(OLD_CRD)}, "rltrainingjobs", "warning", "lacks fields of rlt 0.1.0"),
    "no operator": ({"deployments": read(deployment("kuberay"))}, "operator", "error", "not installed"),
    "stopped operator": (
        {"deployments": read(deployment("kuberay"), deployment("rlt-operator", available=0))},
        "operator",
        "error",
        "has no available pod",
    ),
    "other version": (
        {"client_version": "0.2.0"},
        "operator",
        "warning",
        "is rlt 0.1.0, this command line is rlt 0.2.0",
    ),
    "other namespaces": (
        {"deployments": read(deployment("kuberay"), deployment("rlt-operator", arguments=("--namespace=b",)))},
        "operator",
        "error",
        "does not watch namespace team-a, only b",
    ),
    "hanging operator": ({"now": NOW + timedelta(hours=1)}, "operator", "error", "has renewed its Lease since"),
    "no webhook": ({"webhooks": Reading()}, "webhook", "warning", "No webhook"),
    "no caBundle": ({"webhooks": read(webhook(clientConfig={}))}, "webhook", "error", "no caBundle"),
    "no endpoint": ({"endpoint_slices": Reading()}, "webhook", "error", "no ready endpoint"),
    "no endpoint, fail open": (
        {"endpoint_slices": Reading(), "webhooks": read(webhook(failurePolicy="Ignore"))},
        "webhook",
        "warning",
        "stored without validation",
    ),
    "no nodes": ({"nodes": Reading()}, "nodes", "error", "no nodes"),
    "no class": ({"storage_classes": Reading()}, "storage classes", "warning", "no StorageClass"),
    "block storage alone": (
        {"storage_classes": read(storage_class("ebs.csi.aws.com"))},
        "storage classes",
        "warning",
        "shared (ebs.csi.aws.com)",
    ),
    "no volume": (
        {"volume_claims": read(volume_claim(mode="ReadWriteOnce"))},
        "volumes",
        "warning",
        "has no ReadWrite",
    ),
    "unbound volume": ({"volume_claims": read(volume_claim("Pending"))}, "volumes", "warning", "is Pending"),
    "no runtime": ({"runtimes": Reading()}, "runtimes", "warning", "no RLRuntime"),
    "no queue": ({"local_queues": Reading()}, "queues", "warning", "no LocalQueue"),
    "stopped queue": (
        {"local_queues": read({"metadata": {"name": "q"}, "spec": {"clusterQueue": "c"}, "status": INACTIVE})},
        "queues",
        "error",
        "ClusterQueue is stopped",
    ),
    "used quota": (
        {"quotas": read(quota(**{"requests.nvidia.com/gpu": "8", "pods": "2"}))},
        "quota",
        "warning",
        "nothing left of requests.nvidia.com/gpu (8 of 8)",
    ),
    "failed pull": ({"events": read(PULL)}, "image pull", "warning", "Back-off pulling image x"),
    "enforced policies": (
        {"deployments": read(deployment("kuberay"), deployment("rlt-operator", arguments=("--network-policy=x",)))},
        "network policy",
        "warning",
        "cilium enforces NetworkPolicies, which do not admit `rlt logs`",
    ),
    "unknown network plugin": ({"daemon_sets": Reading()}, "network policy", "unknown", "No known network plugin"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_one_line_with_a_fix(fault: str) -> None:
    change, topic, state, part = FAULTS[fault]
    (line,) = problems(replace(GOOD, **change))
    assert (line.topic, str(line.state)) == (topic, state)
    assert part in line.message
    assert line.fix


@pytest.mark.parametrize(
    ("kind", "example"),
    [("hgx-h100", "h100"), ("mi300x", "mi300x"), ("mi355x", "mi300x"), ("l4", "l4"), ("cpu", "l4")],
)
def test_a_missing_volume_has_the_example_for_the_gpus(kind: str, example: str) -> None:
    facts = replace(GOOD, nodes=nodes(kind), volume_claims=Reading())
    (line,) = [line for line in examine(facts) if line.topic == "volumes"]
    file = f"examples/volumes/{example}.yaml"
    assert line.fix == (
        f"set storageClassName in {file}, then kubectl apply -n team-a -f {file}: docs/prepare-volume.md"
    )
    assert (ROOT / file).is_file()


READINGS = [each.name for each in fields(ClusterFacts) if each.type == "Reading"]


@pytest.mark.parametrize(
    "name", [name for name in READINGS if name not in ("leases", "shard_leases", "resource_slices", "attachments")]
)
def test_what_may_not_be_read_is_a_line_with_the_missing_right(name: str) -> None:
    change: dict[str, Any] = {name: Reading(forbidden=f"list {name}")}
    found = examine(replace(GOOD, **change))
    unread = [line for line in found if line.fix == RIGHTS]
    assert unread
    assert all(line.state == State.UNKNOWN and f"right to list {name}" in line.message for line in unread)
    assert not has_error(found)


def lease(name: str, *, holder: str = "pod_1", age: timedelta = timedelta()) -> Manifest:
    spec = {"holderIdentity": holder, "renewTime": (NOW - age).isoformat()}
    return {"metadata": {"namespace": "rlt-system", "name": name}, "spec": spec}


SHARED = lease("rlt-operator", holder=Shard(0, 4).group)
OWN = f"rlt-operator-{choose_shard(GOOD.namespace, 4)}"
OTHERS = [lease(f"rlt-operator-{number}", age=timedelta(hours=1)) for number in range(4)]


@pytest.mark.parametrize(
    ("leases", "expected"),
    [
        ([*OTHERS, lease(OWN)], []),
        (OTHERS, [f"Lease {OWN} of the shard has not been renewed since"]),
        ([each for each in OTHERS if each["metadata"]["name"] != OWN], [f"Lease {OWN} of the shard does not exist"]),
    ],
)
def test_the_shard_of_the_namespace_needs_a_leader(leases: list[Manifest], expected: list[str]) -> None:
    """The other shards do not matter to a user of this namespace."""
    current = {each["metadata"]["name"]: each for each in leases}
    found = problems(replace(GOOD, leases=read(SHARED), shard_leases=read(*current.values())))
    assert [line.state for line in found] == [State.ERROR] * len(expected)
    assert all(part in line.message for line, part in zip(found, expected, strict=True))


def test_unread_leases_of_shards_are_unknown() -> None:
    (line,) = problems(replace(GOOD, leases=read(SHARED), shard_leases=Reading(forbidden="list leases")))
    assert line.state == State.UNKNOWN


def test_nothing_may_be_read() -> None:
    change: dict[str, Any] = dict.fromkeys(READINGS, Reading(forbidden="list all"))
    found = examine(replace(GOOD, **change))
    assert {line.state for line in found if line.topic != "kubernetes"} == {State.UNKNOWN}


def test_free_gpus_are_those_without_requests_on_usable_nodes() -> None:
    first, second = NODE_KINDS["hgx-h100"]
    container = {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}}}
    pod = {"spec": {"nodeName": "node-1", "containers": [container, container], "initContainers": [container]}}
    elsewhere = {"spec": {"nodeName": "node-2", "containers": [container]}}
    pods = Reading((reduce_pod(pod), reduce_pod(elsewhere)))
    cordoned = {**second, "spec": {"unschedulable": True}}
    usable = replace(GOOD, nodes=Reading((reduce_node(first), reduce_node(cordoned))), pods=pods)
    (line,) = [line for line in examine(usable) if line.topic == "free gpus"]
    assert line.message == "4 of 8 nvidia.com/gpu are free"
    (busy,) = [line for line in examine(replace(usable, pods=Reading(pods.items * 2))) if line.topic == "free gpus"]
    assert busy.state == State.WARNING


def test_virtual_functions_need_a_network_attachment() -> None:
    manifest = {**NODE_KINDS["oke-h100"][0]}
    manifest["status"] = {**manifest["status"], "allocatable": {"nvidia.com/gpu": "8", "nvidia.com/rdma-vf": "16"}}
    facts = replace(GOOD, nodes=read(reduce_node(manifest)))
    (line,) = problems(facts)
    assert (line.topic, line.state) == ("attachments", State.WARNING)
    assert "nvidia.com/rdma-vf" in line.message
    assert problems(replace(facts, attachments=read({"metadata": {"name": "rail-0"}}))) == []


def test_devices_of_a_dra_driver_without_labels_are_an_error() -> None:
    slices = read({"spec": {"driver": "gpu.nvidia.com"}})
    found = problems(replace(GOOD, nodes=nodes("cpu"), resource_slices=slices))
    assert ("device plugin", State.ERROR) in [(line.topic, line.state) for line in found]
