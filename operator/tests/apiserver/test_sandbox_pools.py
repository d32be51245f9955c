"""The pool of sandbox pods of a job: the real Job controller creates its pods, and the operator reads them.

The cluster has no nodes: the test writes the statuses of the pods as a kubelet does. On the Ray head, a program that
waits takes the place of the trainer.
"""

from __future__ import annotations

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
from rlt_core.names import SANDBOX_LABEL

pytestmark = pytest.mark.apiserver

SIZE = 3
MULTI_TURN = {"tools": [{"name": "python"}], "sandbox": {"poolSize": SIZE}}
SPEC = {**o.SPEC, "rollout": {"multiTurn": MULTI_TURN}}
CLAIMED = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
WAITING = {"reason": "ErrImagePull", "message": "not found"}
CONTAINER = {"name": "sandbox", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
NOT_PULLED = {"phase": "Pending", "containerStatuses": [{**CONTAINER, "state": {"waiting": WAITING}}]}


def start(kubernetes: Kubernetes, namespace: str, ray: RayHead, gate: Gate) -> None:
    """Start the job on a ready cluster."""
    kubernetes.create_job(namespace, SPEC)
    kubernetes.ray_cluster(namespace)
    Path(ray.folder, "rlt", PROGRAMS_FILE).write_text(gate.wait)
    kubernetes.make_service(namespace, ray)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Running")


def list_pool(kubernetes: Kubernetes, namespace: str) -> list[str]:
    """List the names of the sandbox pods."""
    found = kubernetes.list_objects(namespace, "pod", labelSelector=f"{SANDBOX_LABEL}=sum")
    return sorted(pod["metadata"]["name"] for pod in found)


def wait_for_pool(kubernetes: Kubernetes, namespace: str) -> list[str]:
    """Wait until the Job controller has created the pods."""
    pods: list[str] = []

    def is_full() -> bool:
        pods[:] = list_pool(kubernetes, namespace)
        return len(pods) == SIZE

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
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """Also after a crash of the operator. A pod that ended is deleted and replaced, and the pool ends with its head."""
    start(kubernetes, namespace, ray, gate)
    first, second, third = wait_for_pool(kubernetes, namespace)
    set_status(kubernetes, namespace, first, READY)
    set_status(kubernetes, namespace, second, CLAIMED)
    set_status(kubernetes, namespace, third, NOT_PULLED)
    wait_for_counts(kubernetes, namespace, ready=1, claimed=1)

    operator.kill()
    operator.start()
    set_status(kubernetes, namespace, first, CLAIMED)
    wait_for_counts(kubernetes, namespace, ready=0, claimed=2)
    assert "ErrImagePull: not found" in wait_for_finding(kubernetes, namespace, "SandboxImageNotPulled")

    set_status(kubernetes, namespace, second, {"phase": "Succeeded"})
    eventually("the ended pod is deleted", lambda: second not in list_pool(kubernetes, namespace))
    (new,) = set(wait_for_pool(kubernetes, namespace)) - {first, third}
    set_status(kubernetes, namespace, new, READY)
    wait_for_counts(kubernetes, namespace, ready=1, claimed=1)
    eventually("no finding", lambda: not kubernetes.status(namespace).get("findings"))

    gate.open()
    kubernetes.end_pods(namespace)
    eventually("no sandbox pods", lambda: not kubernetes.list_objects(namespace, "job"))


def test_a_quota_that_rejects_the_pods_is_a_finding(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """The message comes from an event of the Job controller."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    kubernetes.create(namespace, {**quota, "spec": {"hard": {"pods": str(len(PODS))}}})

    def is_counted() -> bool:
        found = kubernetes.get(namespace, "resourcequota", "small")
        return bool(found and found.get("status", {}).get("hard"))

    eventually("the quota is counted", is_counted)
    start(kubernetes, namespace, ray, gate)
    assert "exceeded quota: small" in wait_for_finding(kubernetes, namespace, "SandboxPodsNotCreated")
    assert list_pool(kubernetes, namespace) == []
    gate.open()
