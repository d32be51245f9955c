"""What the API server rejects ends in a condition with its message, and no object of a user is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_api.status.conditions import ConditionType as C
from rlt_api.validation.validate import validate_job

pytestmark = pytest.mark.apiserver

STORAGE = {**o.SPEC, "storage": {"storageClassName": "nfs", "size": "10Gi"}}


def create(kubernetes: Kubernetes, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    text = kubernetes.kubectl("create", "-n", namespace, "-o", "json", "-f", "-", input=json.dumps(manifest))
    stored: dict[str, Any] = json.loads(text)
    return stored


def wait_for_rejection(kubernetes: Kubernetes, namespace: str, type: C, reason: str) -> str:
    """Wait for the reason; return the message of the status."""
    eventually(
        reason,
        lambda: kubernetes.condition(namespace, type)[1] == reason,
        describe=lambda: kubernetes.status(namespace),
    )
    message: str = kubernetes.status(namespace)["message"]
    assert "The operator retries at 20" in message
    return message


LARGE = {"metadata": {"annotations": {"example.com/script": "x" * 600_000}}}
"""A podTemplate that the API server stores."""
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sum-training"}, "data": {"mine": "1"}}
PVC = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "sum-storage"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "a"},
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "sum-head-svc", "labels": {"ray.io/cluster": "sum", "ray.io/node-type": "head"}},
    "spec": {"type": "ExternalName", "externalName": "attacker.example"},
}


@pytest.mark.parametrize(
    ("manifest", "fix"),
    [(CONFIG_MAP, "Delete it"), (PVC, "Set spec.storage.claimName to sum-storage"), (SERVICE, "of type ExternalName")],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_an_object_of_a_user_is_not_taken(
    kubernetes: Kubernetes, operator: Operator, namespace: str, manifest: dict[str, Any], fix: str
) -> None:
    kind = manifest["kind"]
    name = manifest["metadata"]["name"]
    stored = create(kubernetes, namespace, manifest)
    kubernetes.create_job(namespace, STORAGE)
    message = wait_for_rejection(kubernetes, namespace, C.CLUSTER_READY, "NameTaken")
    assert message.startswith(f"{kind} {name} exists and does not belong to this job")
    assert fix in message
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    found = kubernetes.get(namespace, kind, name)
    assert found
    assert found["metadata"]["uid"] == stored["metadata"]["uid"]
    assert "ownerReferences" not in found["metadata"], "the garbage collector would delete it with the job"
    assert found.get("data", found.get("spec")) == stored.get("data", stored.get("spec"))


def test_the_job_starts_when_the_name_is_free(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    create(kubernetes, namespace, CONFIG_MAP)
    kubernetes.create_job(namespace, o.SPEC)
    eventually("NameTaken", lambda: kubernetes.condition(namespace, C.CLUSTER_READY)[1] == "NameTaken")
    kubernetes.delete(namespace, "configmap", "sum-training")
    kubernetes.ray_cluster(namespace)
    eventually("not stalled", lambda: kubernetes.condition(namespace, C.STALLED)[0] == "")
    assert kubernetes.events(namespace).count("NameTaken") == 1, "retries create no events"


def test_a_new_job_uses_the_volume_of_the_previous_one(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, STORAGE)
    kubernetes.ray_cluster(namespace)
    claim = kubernetes.get(namespace, "persistentvolumeclaim", "sum-storage")
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.create_job(namespace, STORAGE)
    kubernetes.ray_cluster(namespace)
    again = kubernetes.get(namespace, "persistentvolumeclaim", "sum-storage")
    assert claim
    assert again
    assert again["metadata"]["uid"] == claim["metadata"]["uid"]


def test_a_quota_is_quoted(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    create(kubernetes, namespace, {**quota, "spec": {"hard": {"count/rayclusters.ray.io": "0"}}})

    def is_active() -> bool:
        return "used" in (kubernetes.get(namespace, "resourcequota", "none") or {})["status"]

    eventually("the quota is active", is_active)
    kubernetes.create_job(namespace, o.SPEC)
    message = wait_for_rejection(kubernetes, namespace, C.CLUSTER_READY, "ClusterRejected")
    assert "exceeded quota: none" in message
    assert kubernetes.condition(namespace, C.STALLED)[:2] == ("True", "ClusterRejected")


@pytest.fixture
def broken_webhook(kubernetes: Kubernetes, namespace: str) -> Iterator[None]:
    """A webhook of another operator for RayClusters of this namespace, whose server does not exist."""
    webhook = {
        "name": "mraycluster.kb.io",
        "clientConfig": {"url": "https://127.0.0.1:9/mutate"},
        "rules": [
            {"apiGroups": ["ray.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["rayclusters"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    manifest = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"},
        "webhooks": [webhook],
    }
    kubernetes.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "probe"}}
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    probe = json.dumps({**cluster, "spec": {"headGroupSpec": group}})

    def is_called() -> bool:
        try:
            kubernetes.kubectl("create", "--dry-run=server", "-n", namespace, "-f", "-", input=probe)
        except ValueError as error:
            return "failed calling webhook" in str(error)
        return False

    eventually("the API server calls the webhook", is_called)
    yield
    kubernetes.kubectl("delete", "validatingwebhookconfiguration", "broken", "--ignore-not-found")


@pytest.mark.usefixtures("broken_webhook")
def test_a_failing_webhook_of_another_operator_is_quoted(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    message = wait_for_rejection(kubernetes, namespace, C.CLUSTER_READY, "ClusterRejected")
    assert 'failed calling webhook "mraycluster.kb.io"' in message
    assert kubernetes.condition(namespace, C.STALLED)[0] == "", "a retry may succeed"
    kubernetes.kubectl("delete", "validatingwebhookconfiguration", "broken")
    kubernetes.ray_cluster(namespace)


def test_a_large_pod_template_is_rejected_without_the_webhook(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    """The webhook rejects it too: test_validation.py."""
    for path in ("head", "workers"):
        cluster = {**o.SPEC["cluster"]}
        cluster[path] = {"podTemplate": LARGE} if path == "head" else [{**cluster["workers"][0], "podTemplate": LARGE}]
        spec = {**o.SPEC, "cluster": cluster}
        kubernetes.create_job(namespace, spec, name=path)
        _wait_for_rejection(kubernetes, namespace, path)
        message = kubernetes.status(namespace, path)["message"]
        (finding,) = validate_job(path, spec).findings
        assert str(finding) in message
        assert finding.rule == "size"
        assert len(message) < 1000


def _wait_for_rejection(kubernetes: Kubernetes, namespace: str, name: str) -> None:
    eventually("a rejection", lambda: kubernetes.condition(namespace, C.ACCEPTED, name)[0] == "False")
