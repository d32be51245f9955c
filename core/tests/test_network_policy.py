"""The NetworkPolicy of a job: which pods and addresses reach which ports."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest
from policy_evaluator import Endpoint, is_admitted

from rlt_core import names
from rlt_core.children.build import build_children
from rlt_core.children.network_policy import OPERATOR_LABELS, NetworkAccess, build_network_policy
from rlt_core.job import Manifest

ACCESS = NetworkAccess("rlt-system", ("monitoring",), ("10.0.0.1/32", "fd00::/64"))
RAY = 6379
CLIENT = 10001
JOB_API = 8265
DRIVER = 8090
RAY_METRICS = 8080
NCCL = 43210
EVERY_PORT = {RAY, CLIENT, JOB_API, DRIVER, RAY_METRICS, NCCL}


def pod(namespace: str, labels: dict[str, str], address: str = "10.244.0.9", **changes: Any) -> Endpoint:
    return Endpoint(address, namespace, labels, {"kubernetes.io/metadata.name": namespace}, **changes)


HEAD = pod("demo", {**names.labels("sum"), "ray.io/node-type": "head"})
SOURCES = {
    "a worker of the job": (pod("demo", names.labels("sum")), EVERY_PORT),
    "the operator": (pod("rlt-system", OPERATOR_LABELS), {JOB_API, DRIVER}),
    "the API server": (Endpoint("10.0.0.1", is_pod=False), {JOB_API, DRIVER}),
    "the API server, IPv6": (Endpoint("fd00::1", is_pod=False), {JOB_API, DRIVER}),
    "Prometheus": (pod("monitoring", {"app": "prometheus"}), {RAY_METRICS, DRIVER}),
    "another job of the namespace": (pod("demo", names.labels("other")), set()),
    "another pod of the namespace": (pod("demo", {}), set()),
    "a pod of the namespace with the labels of the operator": (pod("demo", OPERATOR_LABELS), set()),
    "another pod in the namespace of the operator": (pod("rlt-system", {}), set()),
    "a pod of another namespace": (pod("evil", {}), set()),
    "a pod of another namespace with the labels of the job": (pod("evil", names.labels("sum")), set()),
    "a pod of another namespace with the labels of the operator": (pod("evil", OPERATOR_LABELS), set()),
    "an address outside": (Endpoint("192.0.2.1", is_pod=False), set()),
    "a pod on the network of its node": (pod("demo", names.labels("sum"), "10.0.0.7", is_pod=False), set()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_only_the_job_the_operator_and_its_clients_reach_the_head(name: str) -> None:
    source, ports = SOURCES[name]
    policy = build_network_policy(o.job(), ACCESS)
    assert {port for port in EVERY_PORT if is_admitted([policy], source, HEAD, port)} == ports


def test_pods_of_other_jobs_are_not_selected() -> None:
    other = pod("demo", names.labels("other"))
    assert is_admitted([build_network_policy(o.job(), ACCESS)], pod("evil", {}), other, RAY)


def test_a_user_can_admit_more_clients() -> None:
    mine: Manifest = {
        "metadata": {"namespace": "demo"},
        "spec": {
            "podSelector": {"matchLabels": {names.JOB_LABEL: "sum"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "notebook"}}}]}],
        },
    }
    notebook = pod("demo", {"app": "notebook"})
    assert not is_admitted([build_network_policy(o.job(), ACCESS)], notebook, HEAD, CLIENT)
    assert is_admitted([build_network_policy(o.job(), ACCESS), mine], notebook, HEAD, CLIENT)


def test_every_pod_of_the_job_has_the_policys_labels() -> None:
    job = o.job()
    assert job.spec
    children = {manifest["kind"]: manifest for manifest in build_children(job, job.spec, ACCESS)}
    selected = children["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    spec = children["RayCluster"]["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert selected.items() <= group["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("by", ["network", "podTemplate", "head"])
def test_a_job_on_the_host_network_gets_no_policy(by: str) -> None:
    spec: dict[str, Any] = {**o.SPEC, "network": {"attach": "hostNetwork"}} if by == "network" else dict(o.SPEC)
    template = {"spec": {"hostNetwork": True}}
    if by == "podTemplate":
        workers = [{**o.SPEC["cluster"]["workers"][0], "podTemplate": template}]
        spec["cluster"] = {**o.SPEC["cluster"], "workers": workers}
    if by == "head":
        spec["cluster"] = {**o.SPEC["cluster"], "head": {"podTemplate": template}}
    job = o.job(spec)
    assert job.spec, job.findings
    assert "NetworkPolicy" not in [manifest["kind"] for manifest in build_children(job, job.spec, ACCESS)]


def test_without_access_a_job_gets_no_policy() -> None:
    job = o.job()
    assert job.spec
    assert "NetworkPolicy" not in [manifest["kind"] for manifest in build_children(job, job.spec)]
