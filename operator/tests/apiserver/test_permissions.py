"""A request that RBAC forbids ends in a condition of the job, or in an event and a log line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.test_ray_token import read_token
from apiserver.test_refusals import wait_for_rejection
from apiserver.waiting import eventually

from rlt_api.status.conditions import ConditionType as C

pytestmark = pytest.mark.apiserver

Limit = Callable[..., Operator]


@pytest.fixture
def limited_operator(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Iterator[Limit]:
    """Starts the operator with the identity of a service account that lacks some permissions of cluster-admin."""
    running: list[Operator] = []

    def start(*, lacks: str) -> Operator:
        kubernetes.kubectl("create", "serviceaccount", "limited", "-n", namespace)
        rules = []
        for resource, verbs in PERMISSIONS.items():
            group, _, plural = resource.partition("/")
            allowed = [verb for verb in verbs if f"{verb} {plural}" != lacks]
            rules.append({"apiGroups": [group], "resources": [plural], "verbs": allowed})
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": namespace},
            "rules": rules,
        }
        kubernetes.kubectl("create", "-f", "-", input=json.dumps(role))
        subject = f"--serviceaccount={namespace}:limited"
        kubernetes.kubectl("create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", subject)
        token = kubernetes.kubectl("create", "token", "limited", "-n", namespace).strip()
        config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        kubeconfig = tmp_path / "limited.yaml"
        kubeconfig.write_text(yaml.safe_dump(config))
        operator = Operator(kubeconfig, tmp_path / "limited.log", ("--namespace", namespace))
        running.append(operator)
        operator.start()
        return operator

    yield start
    for operator in running:
        operator.stop()
    for kind in ("clusterrolebinding", "clusterrole"):
        kubernetes.kubectl("delete", kind, namespace, "--ignore-not-found")


EVERYTHING = ("get", "list", "watch", "create", "patch", "update", "delete")
PERMISSIONS = {
    f"{group}/{plural}": EVERYTHING
    for group, plurals in {
        "rlt.dev": ("rltrainingjobs", "rltrainingjobs/status", "rltrainingjobs/finalizers", "rlruntimes"),
        "ray.io": ("rayclusters",),
        "": (
            "pods",
            "configmaps",
            "persistentvolumeclaims",
            "services",
            "events",
            "nodes",
            "podtemplates",
            "secrets",
            "namespaces",
        ),
        "policy": ("poddisruptionbudgets",),
        "networking.k8s.io": ("networkpolicies",),
        "apiextensions.k8s.io": ("customresourcedefinitions",),
    }.items()
    for plural in plurals
}


def test_a_read_that_is_forbidden_is_a_condition(
    kubernetes: Kubernetes, limited_operator: Limit, namespace: str
) -> None:
    limited_operator(lacks="list pods")
    kubernetes.create_job(namespace, o.SPEC)
    message = wait_for_rejection(kubernetes, namespace, C.STALLED, "RequestFailed")
    assert 'cannot list resource "pods"' in message
    eventually("an event", lambda: "RequestFailed" in kubernetes.events(namespace))


def test_a_write_that_is_forbidden_is_a_condition(
    kubernetes: Kubernetes, limited_operator: Limit, namespace: str
) -> None:
    limited_operator(lacks="create rayclusters")
    kubernetes.create_job(namespace, o.SPEC)
    message = wait_for_rejection(kubernetes, namespace, C.CLUSTER_READY, "ClusterRejected")
    assert 'cannot create resource "rayclusters"' in message


def test_a_forbidden_status_is_an_event_and_a_log_line(
    kubernetes: Kubernetes, limited_operator: Limit, namespace: str
) -> None:
    operator = limited_operator(lacks="patch rltrainingjobs/status")
    kubernetes.create_job(namespace, o.SPEC)
    eventually("an event", lambda: "RequestFailed" in kubernetes.events(namespace))
    assert 'cannot patch resource \\"rltrainingjobs/status\\"' in operator.log.read_text()
    failures = [line for line in operator.fetch("/metrics").splitlines() if line.startswith("rlt_operator_unreported")]
    assert any(float(line.rsplit(" ", 1)[1]) > 0 for line in failures)


def test_no_secret_of_a_job_is_read(kubernetes: Kubernetes, limited_operator: Limit, namespace: str) -> None:
    """After a restart the operator derives the same tokens. A Secret that a user has created is not used."""
    user = ("create", "secret", "generic", "sum-ray-token-1", "--from-literal=auth_token=known", "-n", namespace)
    kubernetes.kubectl(*user)
    of_key = ("--verb=get", "--resource=secrets", "--resource-name=ray-token-key")
    kubernetes.kubectl("create", "role", namespace, "-n", "default", *of_key)
    binding = (f"--role={namespace}", f"--serviceaccount={namespace}:limited")
    kubernetes.kubectl("create", "rolebinding", namespace, "-n", "default", *binding)
    operator = limited_operator(lacks="get secrets")
    kubernetes.create_job(namespace, o.COMMAND_SPEC)
    token = read_token(kubernetes, namespace)
    assert token != "known"
    operator.kill()
    operator.start()
    kubernetes.create_job(namespace, o.COMMAND_SPEC, "other")
    assert read_token(kubernetes, namespace, "other") != token
    assert read_token(kubernetes, namespace) == token
    for kind in ("rolebinding", "role"):
        kubernetes.kubectl("delete", kind, namespace, "-n", "default")
