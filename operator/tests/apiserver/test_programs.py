"""The ConfigMap with the programs for pods, which the jobs of a namespace share."""

from __future__ import annotations

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_core.children.programs import build_programs, has_named_content, name_programs

pytestmark = pytest.mark.apiserver


def test_jobs_share_the_programs_until_the_last_one_is_deleted(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    for name in ("sum", "other"):
        kubernetes.create_job(namespace, o.SPEC, name=name)
        cluster = kubernetes.ray_cluster(namespace, name)
        assert cluster["metadata"]["labels"]["rlt.dev/programs"] == name_programs()
    first = kubernetes.get(namespace, "configmap", name_programs())
    assert first
    assert has_named_content(first)
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no cluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    assert kubernetes.get(namespace, "configmap", name_programs())
    kubernetes.delete(namespace, "rltrainingjob", "other")
    eventually("no programs", lambda: kubernetes.get(namespace, "configmap", name_programs()) is None)


def test_a_users_config_map_with_the_label_stays(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    labels = {"rlt.dev/programs": "mine"}
    kubernetes.create(
        namespace,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "labels": labels}, "data": {"a": "b"}},
    )
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no programs", lambda: kubernetes.get(namespace, "configmap", name_programs()) is None)
    assert kubernetes.get(namespace, "configmap", "mine")


def test_deleted_programs_are_restored(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    before = kubernetes.get(namespace, "configmap", name_programs())
    assert before
    kubernetes.delete(namespace, "configmap", name_programs())
    eventually(
        "new programs",
        lambda: (
            (kubernetes.get(namespace, "configmap", name_programs()) or before)["metadata"]["uid"]
            != before["metadata"]["uid"]
        ),
    )


def test_other_content_under_the_name_is_reported(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    manifest = build_programs(namespace)
    kubernetes.create(namespace, {**manifest, "binaryData": {"rlt_pod.pyz": "eA=="}})
    kubernetes.create_job(namespace, o.SPEC)
    eventually("NameTaken", lambda: "has other programs. Delete it." in kubernetes.status(namespace).get("message", ""))
    kubernetes.delete(namespace, "configmap", name_programs())
    kubernetes.ray_cluster(namespace)
