"""Namespaces that are deleted, or get and lose the label by which they are selected, while the operator runs.

The operator has a service account with the permissions of the chart: a Role in each namespace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.test_permissions import PERMISSIONS
from apiserver.waiting import eventually

pytestmark = pytest.mark.apiserver

CLUSTER_SCOPED = ("/nodes", "/namespaces", "rlt.dev/rlruntimes", "apiextensions.k8s.io/customresourcedefinitions")
LABEL = "rlt.dev/jobs"
ROLE = "in-a-namespace"
SUBJECT = "default:limited"


Start = Callable[..., Operator]


@pytest.fixture
def start(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Start]:
    """Starts the operator with these options."""
    running: list[Operator] = []
    kubernetes.kubectl("create", "serviceaccount", "limited", "-n", "default")
    of_cluster = {name: verbs for name, verbs in PERMISSIONS.items() if name in CLUSTER_SCOPED}
    others = {name: verbs for name, verbs in PERMISSIONS.items() if name not in CLUSTER_SCOPED}
    of_namespaces: dict[str, tuple[str, ...]] = {**others, "/namespaces": ("get",)}
    roles: dict[str, Mapping[str, tuple[str, ...]]] = {"of-the-cluster": of_cluster, ROLE: of_namespaces}
    for name, permissions in roles.items():
        rules = [
            {"apiGroups": [key.partition("/")[0]], "resources": [key.partition("/")[2]], "verbs": list(verbs)}
            for key, verbs in permissions.items()
        ]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        kubernetes.kubectl("create", "-f", "-", input=json.dumps({**role, "rules": rules}))
    binding = ("clusterrolebinding", "of-the-cluster", "--clusterrole=of-the-cluster")
    kubernetes.kubectl("create", *binding, f"--serviceaccount={SUBJECT}")
    bind(kubernetes, "default")  # for the key of the tokens
    token = kubernetes.kubectl("create", "token", "limited", "-n", "default").strip()
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "limited.yaml"
    kubeconfig.write_text(yaml.safe_dump(config))

    def start_operator(*options: str) -> Operator:
        operator = Operator(kubeconfig, tmp_path / "limited.log", options)
        running.append(operator)
        operator.start()
        return operator

    yield start_operator
    for operator in running:
        operator.stop()
    kubernetes.delete_jobs()
    kubernetes.kubectl("delete", "clusterrolebinding", "of-the-cluster")
    kubernetes.kubectl("delete", "rolebinding", "limited", "-n", "default")
    kubernetes.kubectl("delete", "clusterrole", "of-the-cluster", ROLE)
    kubernetes.kubectl("delete", "serviceaccount", "limited", "-n", "default")


def bind(kubernetes: Kubernetes, namespace: str) -> None:
    """Give the operator its permissions in the namespace."""
    kubernetes.kubectl(
        "create", "rolebinding", "limited", "-n", namespace, f"--clusterrole={ROLE}", f"--serviceaccount={SUBJECT}"
    )


def test_the_operator_starts_although_a_watched_namespace_was_deleted(
    kubernetes: Kubernetes, namespace: str, start: Start
) -> None:
    bind(kubernetes, namespace)
    operator = start("--namespace", "deleted", "--namespace", namespace)
    kubernetes.create_job(namespace, o.COMMAND_SPEC)
    kubernetes.ray_cluster(namespace)
    assert operator.metric("rlt_operator_unavailable_namespaces") == 1
    assert "namespace deleted: cannot list" in operator.log.read_text()


def test_namespaces_are_selected_by_a_label_at_run_time(kubernetes: Kubernetes, namespace: str, start: Start) -> None:
    other = f"{namespace}-other"
    kubernetes.create_namespace(other)
    bind(kubernetes, other)
    kubernetes.label_namespace(other, {LABEL: "true"})
    operator = start("--namespace-selector", f"{LABEL}=true")
    for each in (namespace, other):
        kubernetes.create_job(each, o.COMMAND_SPEC)
    kubernetes.ray_cluster(other)
    assert kubernetes.status(namespace) == {}

    kubernetes.label_namespace(namespace, {LABEL: "true"})
    eventually("no Role yet", lambda: operator.metric("rlt_operator_unavailable_namespaces") == 1)
    bind(kubernetes, namespace)
    kubernetes.ray_cluster(namespace)

    kubernetes.label_namespace(namespace, {LABEL: None})
    eventually("the watches end", lambda: f"namespace {namespace} is no longer selected" in operator.log.read_text())
    before = kubernetes.status(namespace)
    kubernetes.suspend(namespace, True)
    kubernetes.delete(other, "rltrainingjob", "sum")
    kubernetes.kubectl("delete", "namespace", other)
    eventually("the namespace is forgotten", lambda: f"namespace {other} is no longer" in operator.log.read_text())
    assert operator.alive()
    assert kubernetes.status(namespace) == before

    kubernetes.label_namespace(namespace, {LABEL: "true"})
    kubernetes.wait(namespace, "Suspended")
