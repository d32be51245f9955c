"""RLRuntimes in the real API server: a job waits for its runtime, keeps it, and ignores later changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

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
    assert platform.status(namespace)["runtime"]["name"] == "processors"


def test_a_job_keeps_the_runtime_it_started_with(platform: Kubernetes, operator: Operator, namespace: str) -> None:
    """The runtime is changed, then deleted, before a restarted operator creates another RayCluster."""
    put_runtime(platform, "registry.example/trainer:1")
    platform.create_job(namespace, SHORT)
    first = platform.ray_cluster(namespace)
    put_runtime(platform, "registry.example/trainer:2")
    eventually("Accepted", lambda: platform.condition(namespace, "Accepted")[0] == "True")
    kept = platform.status(namespace)["resolvedSpec"]
    platform.suspend(namespace, True)
    eventually("Suspended", lambda: platform.condition(namespace, "Suspended")[0] == "True")
    platform.kubectl("delete", "rlruntime", "processors")
    operator.kill()
    operator.start()
    platform.suspend(namespace, False)
    again = platform.ray_cluster(namespace)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert (image_of(first), image_of(again)) == ("registry.example/trainer:1",) * 2
    assert platform.status(namespace)["resolvedSpec"] == kept


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


def test_a_job_without_runtime_ref_gets_the_default_of_its_namespace(
    platform: Kubernetes, operator: Operator, namespace: str
) -> None:
    """The job waits for the default runtime, keeps it, and is not affected by a later label."""
    platform.kubectl("label", "namespace", namespace, "rlt.dev/default-runtime=processors")
    platform.create_job(namespace, {key: value for key, value in SHORT.items() if key != "runtimeRef"})
    eventually("RuntimeNotFound", lambda: platform.condition(namespace, "Accepted")[1] == "RuntimeNotFound")
    put_runtime(platform, "registry.example/trainer:1")
    first = platform.ray_cluster(namespace)
    assert image_of(first) == "registry.example/trainer:1"
    eventually("Accepted", lambda: platform.condition(namespace, "Accepted")[0] == "True")
    assert platform.status(namespace)["runtime"]["name"] == "processors"
    labels = ("rlt.dev/default-runtime-", "rlt.dev/require-runtime=true")
    platform.kubectl("label", "namespace", namespace, *labels, "--overwrite")
    operator.kill()
    operator.start()
    platform.suspend(namespace, True)
    eventually("Suspended", lambda: platform.condition(namespace, "Suspended")[0] == "True")
    platform.suspend(namespace, False)
    again = platform.ray_cluster(namespace)
    assert (image_of(again), again["metadata"]["uid"] == first["metadata"]["uid"]) == (image_of(first), False)


def test_a_job_that_the_webhook_did_not_validate_is_not_accepted(
    platform: Kubernetes, operator: Operator, namespace: str
) -> None:
    """This operator serves no webhook: the API server stores jobs that violate the policy or a limit."""
    platform.kubectl("label", "namespace", namespace, "rlt.dev/require-runtime=true")
    platform.create_job(namespace, o.SPEC)
    eventually("InvalidSpec", lambda: platform.condition(namespace, "Accepted")[:2] == ("False", "InvalidSpec"))
    assert platform.status(namespace)["message"].startswith("spec.runtimeRef: none: is required")
    platform.delete(namespace, "rltrainingjob", "sum")
    put_runtime(platform, "registry.example/trainer:1")
    container = {"name": "ray-head", "securityContext": {"privileged": True}}
    head = {"podTemplate": {"spec": {"containers": [container]}}}
    platform.create_job(namespace, {**SHORT, "cluster": {"head": head}})
    eventually("InvalidSpec", lambda: platform.condition(namespace, "Accepted")[:2] == ("False", "InvalidSpec"))
    message = platform.status(namespace)["message"]
    assert message.startswith("spec.cluster.head.podTemplate.spec.containers[0].securityContext: ")
    assert platform.get(namespace, "raycluster", "sum") is None


def test_the_example_with_a_runtime_is_complete(platform: Kubernetes, operator: Operator, namespace: str) -> None:
    platform.kubectl("apply", "-f", EXAMPLES / "runtimes" / "cpu.yaml")
    platform.kubectl("apply", "-n", namespace, "-f", EXAMPLES / "03-with-a-runtime.yaml")
    cluster = eventually("a RayCluster", lambda: platform.get(namespace, "raycluster", "short"))
    assert image_of(cluster) == "localhost/rlt-trainer:cpu"
    assert cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 2
