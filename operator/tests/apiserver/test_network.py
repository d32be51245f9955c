"""The network settings of a job on simulated nodes, with the labels of device plugins and NFD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually
from fabric.node_builders import GPUS, HCA, IB, Manifest, node, nvidia

pytestmark = pytest.mark.apiserver

(GROUP,) = o.ON_GPUS["cluster"]["workers"]
IN_THE_POOL = {**GROUP, "nodeSelector": {"pool": "gpus"}}
ON_GPUS: dict[str, Any] = {
    **o.ON_GPUS,
    "network": {"require": "rdma"},
    "cluster": {**o.ON_GPUS["cluster"], "workers": [IN_THE_POOL]},
}
IN_POOL = nvidia() | IB | {"pool": "gpus"}


@pytest.fixture
def nodes(kubernetes: Kubernetes) -> Iterator[list[str]]:
    """Names of nodes that the test adds. They are deleted after the test."""
    names: list[str] = []
    yield names
    for name in names:
        kubernetes.kubectl("delete", "node", name, "--wait=false")


def add(kubernetes: Kubernetes, manifest: Manifest) -> str:
    """Create a node, and set its status through the subresource."""
    name: str = manifest["metadata"]["name"]
    kubernetes.kubectl("create", "-f", "-", input=json.dumps(manifest))
    set_status(kubernetes, name, **manifest["status"])
    return name


def set_status(kubernetes: Kubernetes, name: str, **status: Any) -> None:
    """Set the status of a node, as a kubelet does."""
    patch = json.dumps({"status": status})
    kubernetes.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)


def test_a_job_waits_for_rdma_until_a_device_plugin_reports_it(
    kubernetes: Kubernetes, operator: Operator, namespace: str, nodes: list[str]
) -> None:
    nodes += [add(kubernetes, node(f"gpu-{number}", IN_POOL, GPUS)) for number in (1, 2)]
    kubernetes.create_job(namespace, ON_GPUS)
    eventually("RdmaNotFound", lambda: kubernetes.condition(namespace, "FabricVerified")[1] == "RdmaNotFound")
    assert "device plugin" in kubernetes.condition(namespace, "FabricVerified")[2]
    assert kubernetes.condition(namespace, "Stalled")[0] == "True"
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    for name in nodes:
        set_status(kubernetes, name, allocatable={key: str(count) for key, count in HCA.items()})
    cluster = eventually("a RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum"))
    assert kubernetes.condition(namespace, "FabricVerified")[:2] == ("True", "FabricFound")
    (group,) = cluster["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    status = kubernetes.status(namespace)["network"]
    assert (status["profile"], status["candidates"]) == ("onprem-infiniband", 2)
    assert all(each["rule"] and each["source"] for each in status["env"])
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert {each["name"]: each["value"] for each in status["env"]}.items() <= variables.items()
    assert container["resources"]["limits"]["rdma/hca_shared_devices_a"] == "1"
    assert container["securityContext"]["capabilities"]["add"] == status["attach"]["capabilities"] == ["IPC_LOCK"]


def test_nodes_that_disagree_get_the_generic_profile_and_a_reason(
    kubernetes: Kubernetes, operator: Operator, namespace: str, nodes: list[str]
) -> None:
    nodes.append(add(kubernetes, node("with-ib", IN_POOL, GPUS | HCA)))
    nodes.append(add(kubernetes, node("without", nvidia() | {"pool": "gpus"}, GPUS)))
    operator.kill()
    operator.start()  # Its cache contains both nodes. Watch events of nodes and jobs arrive in any order.
    kubernetes.create_job(namespace, {**ON_GPUS, "network": {"require": "any"}})
    eventually("a RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum"))
    status, reason, message = kubernetes.condition(namespace, "FabricVerified")
    assert (status, reason) == ("False", "NodesDisagree")
    assert "onprem-infiniband" in message
    assert "with-ib" in message
    assert kubernetes.status(namespace)["network"]["profile"] == "generic"
    eventually("an event", lambda: "NodesDisagree" in kubernetes.events(namespace))


def test_a_missing_kind_is_named(kubernetes: Kubernetes, operator: Operator, namespace: str, nodes: list[str]) -> None:
    clique = {"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1", "pool": "gpus"}
    nodes.append(add(kubernetes, node("nvl72", nvidia("NVIDIA-GB200", **clique) | IB, GPUS | HCA)))
    kubernetes.create_job(namespace, ON_GPUS)
    kubernetes.wait(namespace, "ClusterReady", "ClusterRejected")
    message = "the job needs ComputeDomain (resource.nvidia.com/v1beta1), which is not installed"
    assert message in kubernetes.condition(namespace, "ClusterReady")[2]
    assert kubernetes.get(namespace, "raycluster", "sum") is None


def test_a_missing_resource_is_reported_before_children_are_created(
    kubernetes: Kubernetes, operator: Operator, namespace: str, nodes: list[str]
) -> None:
    nodes.append(add(kubernetes, node("cpus", {"pool": "gpus"}, {})))
    kubernetes.create_job(namespace, ON_GPUS)
    eventually("ResourceNotFound", lambda: kubernetes.condition(namespace, "FabricVerified")[1] == "ResourceNotFound")
    assert "nvidia.com/gpu" in kubernetes.condition(namespace, "FabricVerified")[2]
    assert kubernetes.get(namespace, "raycluster", "sum") is None
