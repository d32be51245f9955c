"""Gang scheduling of Kubernetes in the real API server, which enables the feature."""

from __future__ import annotations

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

pytestmark = pytest.mark.apiserver

GANG = {**o.COMMAND_SPEC, "scheduling": {"schedulerName": "default-scheduler", "gang": True}}


def test_the_pods_reference_the_workload_of_the_job(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, GANG)
    cluster = eventually("a RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum"))
    reference = cluster["spec"]["headGroupSpec"]["template"]["spec"]["workloadRef"]
    workload = kubernetes.get(namespace, "workload", reference["name"])
    assert workload
    (group,) = workload["spec"]["podGroups"]
    assert (group["name"], group["policy"]["gang"]["minCount"]) == (reference["podGroup"], 3)


def test_the_api_server_keeps_the_workload_reference_of_a_pod(kubernetes: Kubernetes, namespace: str) -> None:
    spec = {"containers": [{"name": "a", "image": "i"}], "workloadRef": {"name": "sum-3-pods", "podGroup": "ray"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace}, "spec": spec}
    assert kubernetes.dry_run(namespace, pod)["spec"]["workloadRef"] == spec["workloadRef"]
