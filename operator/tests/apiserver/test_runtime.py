"""RLRuntimes in the real API server: a job waits for its runtime, keeps it, and ignores later changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.in_cluster import Kubernetes, Operator, eventually

pytestmark = pytest.mark.apiserver

EXAMPLES = Path(__file__).parents[3] / "examples"
SHORT: dict[str, Any] = {
    "runtimeRef": {"name": "processors"},
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 3, "trainBatchSize": 8},
}
POOL = {"name": "small", "resources": {"cpu": "2", "memory": "8Gi"}}


@pytest.fixture
def platform(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """The API server. The runtimes are deleted after the test."""
    yield kubernetes
    kubernetes.kubectl("delete", "rlruntimes", "--all")


def put_runtime(kubernetes: Kubernetes, image: str) -> None:
    spec = {"images": {"cpu": image}, "nodePools": [POOL]}
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": "processors"}, "spec": spec}
    kubernetes.kubectl("apply", "-f", "-", input=json.dumps(manifest))


def image_of(cluster: dict[str, Any]) -> str:
    found: str = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return found


def test_a_job_waits_for_its_runtime(platform: Kubernetes, operator: Operator, namespace: str) -> None:
    platform.create_job(namespace, SHORT)
    eventually("RuntimeNotFound", lambda: platform.condition(namespace, "Accepted")[1] == "RuntimeNotFound")
    assert "RLRuntime processors does not exist" in platform.status(namespace)["message"]
    assert platform.get(namespace, "raycluster", "sum") is None
    put_runtime(platform, "registry.example/trainer:1")
    assert image_of(platform.ray_cluster(namespace)) == "registry.example/trainer:1"
    eventually("Accepted", lambda: platform.condition(namespace, "Accepted")[0] == "True")
    assert platform.status(namespace)["runtimeSnapshot"]["name"] == "processors"


def test_a_job_keeps_the_runtime_it_started_with(platform: Kubernetes, operator: Operator, namespace: str) -> None:
    """The runtime is changed, then deleted, before a restarted operator creates another RayCluster."""
    put_runtime(platform, "registry.example/trainer:1")
    platform.create_job(namespace, SHORT)
    first = platform.ray_cluster(namespace)
    put_runtime(platform, "registry.example/trainer:2")
    eventually("Accepted", lambda: platform.condition(namespace, "Accepted")[0] == "True")
    kept = platform.status(namespace)["runtimeSnapshot"]
    platform.suspend(namespace, True)
    eventually("Suspended", lambda: platform.condition(namespace, "Suspended")[0] == "True")
    platform.kubectl("delete", "rlruntime", "processors")
    operator.kill()
    operator.start()
    platform.suspend(namespace, False)
    again = platform.ray_cluster(namespace)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert (image_of(first), image_of(again)) == ("registry.example/trainer:1",) * 2
    assert platform.status(namespace)["runtimeSnapshot"] == kept


def test_a_change_of_the_runtime_does_not_change_a_running_cluster(
    platform: Kubernetes, operator: Operator, namespace: str
) -> None:
    put_runtime(platform, "registry.example/trainer:1")
    platform.create_job(namespace, SHORT)
    before = platform.ray_cluster(namespace)
    eventually("Accepted", lambda: platform.condition(namespace, "Accepted")[0] == "True")
    count = operator.reconciliations()
    put_runtime(platform, "registry.example/trainer:2")
    eventually("two more reconciliations", lambda: operator.reconciliations() >= count + 2)
    assert platform.ray_cluster(namespace)["metadata"]["generation"] == before["metadata"]["generation"]


def test_the_example_with_a_runtime_is_complete(platform: Kubernetes, operator: Operator, namespace: str) -> None:
    platform.kubectl("apply", "-f", EXAMPLES / "runtimes" / "cpu.yaml")
    platform.kubectl("apply", "-n", namespace, "-f", EXAMPLES / "03-with-a-runtime.yaml")
    cluster = eventually("a RayCluster", lambda: platform.get(namespace, "raycluster", "short"))
    assert image_of(cluster) == "localhost/rlt-trainer:cpu"
    assert cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 2
