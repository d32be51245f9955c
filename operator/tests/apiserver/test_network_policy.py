"""The NetworkPolicy of a job, as the real API server stores it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

pytestmark = pytest.mark.apiserver

OPTIONS = ("--network-policy=rlt-system", "--metrics-namespace=monitoring", "--client-cidr=10.0.0.1/32")


@pytest.fixture
def operator(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Operator]:
    """The operator with the options that the chart passes."""
    running = Operator(kubernetes.cluster.kubeconfig, tmp_path / "operator.log", OPTIONS)
    running.start()
    yield running
    running.stop()


def test_a_job_gets_its_policy_before_its_cluster(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.COMMAND_SPEC)
    cluster = kubernetes.ray_cluster(namespace)
    policy = kubernetes.get(namespace, "networkpolicy", "sum-pods")
    assert policy
    assert policy["metadata"]["creationTimestamp"] <= cluster["metadata"]["creationTimestamp"]
    assert [sorted(rule) for rule in policy["spec"]["ingress"]] == [["from"], ["from", "ports"], ["from", "ports"]]
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no policy", lambda: kubernetes.get(namespace, "networkpolicy", "sum-pods") is None)
