"""The pool of sandbox pods of a job: the real Job controller or agent-sandbox creates its pods, and the operator reads
them.

The cluster has no nodes: the test writes the statuses of the pods as a kubelet does. On the Ray head, a program that
waits takes the place of the trainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import PODS, READY, Kubernetes, Operator
from apiserver.ray_head import RayHead
from apiserver.test_ray_jobs import make_ready
from apiserver.waiting import eventually
from gate import Gate

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_core.children.sandboxes import AGENT_SANDBOX
from rlt_core.names import SANDBOX_LABEL
from rlt_e2e.cluster.agent_sandbox import agent_sandbox

pytestmark = pytest.mark.apiserver

SIZE = 3
KINDS = {"Pods": "job", "AgentSandbox": "sandbox"}
"""Provider -> kind of what the pods belong to."""
CLAIMED = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
WAITING = {"reason": "ErrImagePull", "message": "not found"}
CONTAINER = {"name": "sandbox", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
NOT_PULLED = {"phase": "Pending", "containerStatuses": [{**CONTAINER, "state": {"waiting": WAITING}}]}


@pytest.fixture(params=KINDS)
def provider(kubernetes: Kubernetes, request: pytest.FixtureRequest) -> Iterator[str]:
    """The provider of the pods, which is installed."""
    name: str = request.param
    with agent_sandbox(kubernetes.cluster) if name == AGENT_SANDBOX else nullcontext():
        yield name


def create_job(kubernetes: Kubernetes, namespace: str, provider: str) -> None:
    """Create the job."""
    sandbox = {"poolSize": SIZE, "provider": provider}
    rollout = {"multiTurn": {"tools": [{"name": "python"}], "sandbox": sandbox}}
    kubernetes.create_job(namespace, {**o.SPEC, "rollout": rollout})


def start(kubernetes: Kubernetes, namespace: str, provider: str, ray: RayHead, gate: Gate) -> None:
    """Start the job on a ready cluster."""
    create_job(kubernetes, namespace, provider)
    kubernetes.ray_cluster(namespace)
    Path(ray.folder, "rlt", PROGRAMS_FILE).write_text(gate.wait)
    kubernetes.make_service(namespace, ray)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Running")


def list_pool(kubernetes: Kubernetes, namespace: str) -> dict[str, str]:
    """List the sandbox pods: uid -> name. agent-sandbox uses a name again."""
    found = kubernetes.list_objects(namespace, "pod", labelSelector=f"{SANDBOX_LABEL}=sum")
    return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in found}


def wait_for_pool(kubernetes: Kubernetes, namespace: str, *, without: str = "") -> dict[str, str]:
    """Wait until all pods exist, and the one with the uid `without` is gone."""
    pods: dict[str, str] = {}

    def is_full() -> bool:
        pods.clear()
        pods.update(list_pool(kubernetes, namespace))
        return len(pods) == SIZE and without not in pods

    eventually("the sandbox pods", is_full, describe=lambda: (pods, kubernetes.list_objects(namespace, "event")))
    return pods


def set_status(kubernetes: Kubernetes, namespace: str, pod: str, status: dict[str, Any]) -> None:
    """Write the status of a pod, as a kubelet does."""
    kubernetes.patch(namespace, "pod", pod, {"status": status}, status=True)


def wait_for_counts(kubernetes: Kubernetes, namespace: str, *, ready: int, claimed: int) -> None:
    """Wait until status.sandboxes has these counts."""
    expected = {"ready": ready, "claimed": claimed}
    eventually(
        f"the sandboxes {expected}",
        lambda: expected.items() <= kubernetes.status(namespace)["sandboxes"].items(),
        describe=lambda: kubernetes.status(namespace)["sandboxes"],
    )


def wait_for_finding(kubernetes: Kubernetes, namespace: str, code: str) -> str:
    """Wait until this is the only finding. Return its evidence."""

    def read() -> list[dict[str, str]]:
        found: list[dict[str, str]] = kubernetes.status(namespace).get("findings", [])
        return found

    eventually(code, lambda: [each["code"] for each in read()] == [code], describe=read)
    return read()[0]["evidence"]


def test_the_status_has_the_pods_that_are_ready_and_claimed(
    kubernetes: Kubernetes, operator: Operator, namespace: str, provider: str, ray: RayHead, gate: Gate
) -> None:
    """Also after a crash of the operator. A pod that ended is deleted and replaced, and the pool ends with its head."""
    start(kubernetes, namespace, provider, ray, gate)
    before = wait_for_pool(kubernetes, namespace)
    first, second, third = before.values()
    set_status(kubernetes, namespace, first, READY)
    set_status(kubernetes, namespace, second, CLAIMED)
    set_status(kubernetes, namespace, third, NOT_PULLED)
    wait_for_counts(kubernetes, namespace, ready=1, claimed=1)

    operator.kill()
    operator.start()
    set_status(kubernetes, namespace, first, CLAIMED)
    wait_for_counts(kubernetes, namespace, ready=0, claimed=2)
    assert "ErrImagePull: not found" in wait_for_finding(kubernetes, namespace, "SandboxImageNotPulled")

    (ended,) = (uid for uid, name in before.items() if name == second)
    set_status(kubernetes, namespace, second, {"phase": "Succeeded"})
    after = wait_for_pool(kubernetes, namespace, without=ended)
    (new,) = (name for uid, name in after.items() if uid not in before)
    set_status(kubernetes, namespace, new, READY)
    wait_for_counts(kubernetes, namespace, ready=1, claimed=1)
    eventually("no finding", lambda: not kubernetes.status(namespace).get("findings"))

    gate.open()
    kubernetes.end_pods(namespace)
    eventually("no sandbox pods", lambda: not kubernetes.list_objects(namespace, KINDS[provider]))


def test_a_job_waits_for_agent_sandbox(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.kubectl("delete", "crd", "sandboxes.agents.x-k8s.io", "--ignore-not-found", "--timeout=300s")
    create_job(kubernetes, namespace, "AgentSandbox")
    kubernetes.wait(namespace, "ClusterReady", "AgentSandboxMissing")
    assert kubernetes.get(namespace, "configmap", "sum-training") is None
    with agent_sandbox(kubernetes.cluster):
        kubernetes.ray_cluster(namespace)


def test_a_quota_that_rejects_the_pods_is_a_finding(
    kubernetes: Kubernetes, operator: Operator, namespace: str, provider: str, ray: RayHead, gate: Gate
) -> None:
    """The message comes from an event of the Job controller, or from the status of a Sandbox."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    kubernetes.create(namespace, {**quota, "spec": {"hard": {"pods": str(len(PODS))}}})

    def is_counted() -> bool:
        found = kubernetes.get(namespace, "resourcequota", "small")
        return bool(found and found.get("status", {}).get("hard"))

    eventually("the quota is counted", is_counted)
    start(kubernetes, namespace, provider, ray, gate)
    assert "exceeded quota: small" in wait_for_finding(kubernetes, namespace, "SandboxPodsNotCreated")
    assert list_pool(kubernetes, namespace) == {}
    gate.open()
