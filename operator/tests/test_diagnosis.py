"""Why a cluster is not ready: a table of causes, each with the message that reports it.

Shapes of conditions and statuses are from kubelet and scheduler 1.35.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.diagnosis.pods import MAX_MESSAGE_LENGTH, diagnose, truncate
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.manifests import parse_pod
from rlt_operator.observation import Observed, WarningEvent
from rlt_operator.reconcile.plan import plan


def pod(status: dict[str, Any], name: str = "sum-head-a") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"ray.io/node-type": "head" if "head" in name else "worker"},
            "ownerReferences": [{"kind": "RayCluster", "uid": o.CLUSTER_UID, "controller": True}],
        },
        "status": status,
    }


def waiting(reason: str, message: str = "", **last: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": state, **last}]}


NO_NODE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: not eligible."
NO_PVC = 'persistentvolumeclaim "runs" not found'
NO_IMAGE = 'failed to pull and unpack image "nowhere/none:1": not found'
OOM = {"reason": "OOMKilled", "exitCode": 137, "message": "Process exit logs will be saved to /tmp/ray\n"}

CASES = {
    "unschedulable": (
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": NO_NODE}]},
        (Reason.UNSCHEDULABLE, NO_NODE, Phase.PENDING, False),
    ),
    "PVC missing": (
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": NO_PVC}]},
        (Reason.UNSCHEDULABLE, NO_PVC, Phase.PENDING, False),
    ),
    "image not found": (
        waiting("ErrImagePull", NO_IMAGE),
        (Reason.IMAGE_PULL_FAILED, NO_IMAGE, Phase.PROVISIONING, True),
    ),
    "image pull backs off": (
        waiting("ImagePullBackOff", f"Back-off pulling image: {NO_IMAGE}"),
        (Reason.IMAGE_PULL_FAILED, NO_IMAGE, Phase.PROVISIONING, True),
    ),
    "image never pulled": (
        waiting("ErrImageNeverPull", "Container image is not present with pull policy of Never"),
        (Reason.IMAGE_PULL_FAILED, "pull policy of Never", Phase.PROVISIONING, True),
    ),
    "config map missing": (
        waiting("CreateContainerConfigError", 'configmap "x" not found'),
        (Reason.CONTAINER_CONFIG_FAILED, 'configmap "x" not found', Phase.PROVISIONING, True),
    ),
    "out of memory": (
        waiting("CrashLoopBackOff", "back-off 10s", restartCount=3, lastState={"terminated": OOM}),
        (Reason.CONTAINER_CRASHED, "OOMKilled, exit code 137", Phase.PROVISIONING, False),
    ),
    "crash with a termination message": (
        waiting(
            "CrashLoopBackOff",
            restartCount=1,
            lastState={"terminated": {"reason": "Error", "exitCode": 127, "message": "bash: ray: command not found\n"}},
        ),
        (Reason.CONTAINER_CRASHED, "bash: ray: command not found", Phase.PROVISIONING, False),
    ),
    "evicted": (
        {"phase": "Failed", "message": "The node was low on resource: memory."},
        (Reason.CONTAINER_CRASHED, "The node was low on resource: memory.", Phase.PROVISIONING, False),
    ),
}


def observe(*pods: dict[str, Any]) -> Observed:
    return replace(o.FRESH, cluster=o.cluster(), pods=tuple(map(parse_pod, pods)))


@pytest.mark.parametrize("name", CASES)
def test_the_message_quotes_the_cause(name: str) -> None:
    status, (reason, message, phase, stalled) = CASES[name]
    status_after = plan(observe(pod(status)), o.NOW).status
    assert status_after
    ready = find_condition(status_after, C.CLUSTER_READY)
    assert ready
    assert (ready.status, ready.reason) == ("False", reason)
    assert message in ready.message
    assert status_after.message == ready.message
    assert status_after.phase == phase
    assert is_true(status_after, C.STALLED) == stalled
    assert not is_true(status_after, C.FAILED)


def test_starting_pods_have_no_diagnosis() -> None:
    assert diagnose(observe(pod(waiting("ContainerCreating")), pod(waiting("PodInitializing"), "sum-worker-b"))) is None


def test_a_completed_init_container_is_not_a_crash() -> None:
    done = {"name": "wait-gcs-ready", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    assert diagnose(observe(pod({"phase": "Pending", "initContainerStatuses": [done]}, "sum-worker-b"))) is None


def test_a_worker_that_waits_for_the_head_is_named() -> None:
    """The message exists while the head is ready and the worker's init container runs."""
    init = {"name": "wait-gcs-ready", "state": {"running": {}}}
    worker = parse_pod(pod({"phase": "Pending", "initContainerStatuses": [init]}, "sum-worker-b"))
    head = next(each for each in o.READY.pods if each.is_head)
    job = o.READY.job
    assert job.spec
    ready = build_cluster_ready(replace(o.READY, pods=(head, worker)), job.spec)
    assert "sum-worker-b waits for a connection to sum-head-svc:6379." in ready.message
    starting = build_cluster_ready(replace(o.READY, pods=(replace(head, ready=False), worker)), job.spec)
    assert "waits for a connection" not in starting.message


@pytest.mark.parametrize("waited", [29, 31])
def test_a_worker_that_cannot_reach_the_head_is_reported_after_30_s(waited: int) -> None:
    """From the later of the two: the head is ready, the init container runs."""
    since = (o.NOW - timedelta(seconds=waited)).isoformat()
    before = (o.NOW - timedelta(seconds=600)).isoformat()
    for head_since, init_since in ((since, before), (before, since)):
        head = pod({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": head_since}]})
        init = {"name": "wait-gcs-ready", "state": {"running": {"startedAt": init_since}}}
        worker = pod({"phase": "Pending", "initContainerStatuses": [init]}, "sum-worker-b")
        status = plan(observe(head, worker), o.NOW).status
        assert status
        ready = find_condition(status, C.CLUSTER_READY)
        assert ready
        assert "sum-worker-b waits for a connection to sum-head-svc:6379" in ready.message
        late = [("WorkerCannotReachHead", "sum-worker-b")] if waited > 30 else []
        assert ready.reason == ("HeadUnreachable" if late else "Starting")
        assert [(each.code, each.pod) for each in status.findings] == late


def test_an_init_container_without_image_is_diagnosed() -> None:
    status = waiting("PodInitializing")
    status["initContainerStatuses"] = [{"name": "wait-gcs-ready", "state": {"waiting": {"reason": "ErrImagePull"}}}]
    found = diagnose(observe(pod(status, "sum-worker-b")))
    assert found
    assert "wait-gcs-ready" in found.message


def test_a_volume_failure_is_diagnosed_from_its_event() -> None:
    warning = WarningEvent("uid-sum-head-a", "FailedMount", "MountVolume.SetUp failed: no route to the server")
    found = diagnose(replace(observe(pod(waiting("ContainerCreating"))), warnings=(warning,)))
    assert found
    assert "no route to the server" in found.message


def test_the_first_read_of_a_secret_by_the_kubelet_is_not_a_failure() -> None:
    message = (
        'MountVolume.SetUp failed for volume "ray-token" : failed to sync secret cache: timed out waiting for the '
    )
    warning = WarningEvent("uid-sum-head-a", "FailedMount", f"{message}condition")
    assert diagnose(replace(observe(pod(waiting("ContainerCreating"))), warnings=(warning,))) is None


def test_a_rejection_by_kuberay_is_diagnosed() -> None:
    warning = WarningEvent(o.CLUSTER_UID, "InvalidRayClusterSpec", "The RayCluster spec is invalid: because")
    found = diagnose(replace(observe(), warnings=(warning,)))
    assert found
    assert found.reason == Reason.CLUSTER_REJECTED
    assert found.stalled


def test_pods_of_another_cluster_are_ignored() -> None:
    other = pod(CASES["image not found"][0])
    other["metadata"]["ownerReferences"][0]["uid"] = "other"
    assert diagnose(observe(other)) is None


def test_pods_with_the_same_cause_are_counted() -> None:
    status = CASES["unschedulable"][0]
    found = diagnose(observe(*(pod(status, f"sum-worker-{letter}") for letter in "cab")))
    assert found
    assert found.message.startswith("Pod sum-worker-a cannot be scheduled")
    assert found.message.endswith("(and 2 more pods)")


def test_the_failure_names_a_worker_that_ran_out_of_memory() -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "ray-worker", "lastState": {"terminated": OOM}}]}
    failed = replace(observe(pod(status, "sum-worker-b")), ray=o.ended("FAILED", "ActorDiedError"))
    status_after = plan(failed, o.NOW).status
    assert status_after
    ended = "Pod sum-worker-b, container ray-worker ended: OOMKilled, exit code 137"
    assert (status_after.message or "").startswith(f"ActorDiedError\n{ended}. ContainerOomKilled: ")


def test_messages_are_truncated() -> None:
    assert len(truncate("x" * 10 * MAX_MESSAGE_LENGTH)) == MAX_MESSAGE_LENGTH + 1
