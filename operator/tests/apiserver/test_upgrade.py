"""An upgrade of the operator changes no job: children come from the resolved spec in the status."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_api.validation.resolved_spec import dump_resolved_spec, get_resolved_spec

pytestmark = pytest.mark.apiserver

SPEC: dict[str, Any] = {
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 3, "trainBatchSize": 8},
    "cluster": {
        "image": "registry.example/trainer:1",
        "workers": [{"resources": {"cpu": "1", "memory": "4Gi"}}],
    },
}
OTHER_DEFAULTS: dict[str, Any] = {
    "training": {"learningRate": 0.25, "ppoMiniBatchSize": 4},
    "rollout": {"temperature": 0.5},
    "security": {"runAsUser": 4242},
    "cluster": {"head": {"resources": {"memory": "3Gi"}}},
}
"""Values that this version has other defaults for."""


def merge(value: Any, changes: Any) -> Any:
    """The value with these changes, as a merge patch of JSON makes them."""
    if not isinstance(value, dict) or not isinstance(changes, dict):
        return changes
    return {**value, **{key: merge(value.get(key), each) for key, each in changes.items()}}


def change_resolved_spec(kubernetes: Kubernetes, namespace: str, changes: dict[str, Any]) -> None:
    kept = get_resolved_spec({"status": kubernetes.status(namespace)})
    patch = json.dumps({"status": {"resolvedSpec": dump_resolved_spec(merge(kept, changes))}})
    kubernetes.kubectl(
        "patch", "rltrainingjob", "sum", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
    )


def children(kubernetes: Kubernetes, namespace: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Uid and spec of the RayCluster, and the data of the ConfigMap."""
    cluster = kubernetes.ray_cluster(namespace)
    config = kubernetes.get(namespace, "configmap", "sum-training")
    assert config
    return cluster["metadata"]["uid"], cluster["spec"], config["data"]


def accept(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    """Let the operator accept a suspended job, and stop the operator."""
    kubernetes.create_job(namespace, {**SPEC, "suspend": True})
    eventually("Suspended", lambda: kubernetes.condition(namespace, "Suspended")[0] == "True")
    operator.kill()


def test_a_job_keeps_the_defaults_of_the_operator_that_accepted_it(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    accept(kubernetes, operator, namespace)
    change_resolved_spec(kubernetes, namespace, OTHER_DEFAULTS)
    operator.start()
    kubernetes.suspend(namespace, False)
    uid, spec, data = children(kubernetes, namespace)
    pod = spec["headGroupSpec"]["template"]["spec"]
    config = json.loads(data["training.json"])
    assert (pod["securityContext"]["runAsUser"], pod["containers"][0]["resources"]["limits"]["memory"]) == (4242, "3Gi")
    assert (config["training"]["learningRate"], config["training"]["ppoMiniBatchSize"]) == (0.25, 4)
    assert config["rollout"]["temperature"] == 0.5

    kubernetes.suspend(namespace, True)
    eventually("Suspended", lambda: kubernetes.condition(namespace, "Suspended")[0] == "True")
    operator.kill()
    operator.start()
    kubernetes.suspend(namespace, False)
    again = children(kubernetes, namespace)
    assert again[0] != uid
    assert again[1:] == (spec, data)


def test_the_api_server_stores_every_field(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    """Null included: a default that a later version introduces must not apply."""
    kubernetes.create_job(namespace, SPEC)
    kubernetes.ray_cluster(namespace)
    resolved = get_resolved_spec({"status": kubernetes.status(namespace)})
    assert resolved["training"]["totalEpochs"] is None
    assert resolved["training"]["learningRate"] == 1e-6
    job = json.loads(
        kubernetes.kubectl("get", "rltrainingjob/sum", "-n", namespace, "-o", "json", "--show-managed-fields")
    )
    owned = [each["fieldsV1"]["f:status"] for each in job["metadata"]["managedFields"] if each.get("subresource")]
    assert [each["f:resolvedSpec"] for each in owned] == [{}], "one entry for the whole field"
    lines = kubernetes.kubectl("describe", "rltrainingjob/sum", "-n", namespace).splitlines()
    (kept,) = (line for line in lines if line.startswith("  Resolved Spec:"))
    assert json.loads(kept.split(maxsplit=2)[2]) == resolved
