"""spec.failurePolicy.restartPolicy InPlace: another execution of a failed program on the same RayCluster.

The status that records the failed attempt makes the next execution the current one, so that the RayCluster stays.
Before that execution gets its other Ray jobs, one waits for the end of the earlier execution's processes. If it fails,
the earlier execution becomes the current one again, and its RayCluster is released as after any failed attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, Phase
from rlt_core.entrypoint import build_clearance_entrypoint
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.disruption import LOST_NODE, find_drain
from rlt_operator.diagnosis.pods import list_crashed_workers
from rlt_operator.diagnosis.progress import extract_error
from rlt_operator.lifecycle.backoff import count_delay
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.submission import submit
from rlt_operator.observation import Observed, Pod, Ray
from rlt_operator.verdict import WAITING_INTERVAL_S, Submission, Verdict

MAX_IN_PLACE = 3
"""Maximum number of executions in place on a RayCluster. Different failures in a row point to something that they have
in common, such as the full disk of a pod, which only new pods remove. A new RayCluster costs one to two minutes."""
CLEARANCE_TIMEOUT_S = 120.0
"""Time after which the check for processes of an earlier execution counts as failed, and in which a worker whose
container has ended is ready again. The check ends by itself after 60 s (rlt_pod/clear.py); Ray needs some seconds to
start it."""

C = ConditionType


def can_retry_in_place(observed: Observed, spec: RLTrainingJobSpec, attempt: Attempt) -> bool:
    """Whether the attempt, which has failed now and may be followed by another one, leaves a healthy RayCluster."""
    ray = observed.ray
    is_program = ray is not None and ray.job is not None and ray.job.status == "FAILED"
    if spec.failure_policy.restart_policy != "InPlace" or not is_program or attempt.disruption:
        return False
    if attempt.reason != Reason.PROGRAM_FAILED or observed.stop_request or observed.job.is_suspended:
        return False
    crashed = list_crashed_workers(observed)
    lost = LOST_NODE.search((ray.log if ray else None) or "") and not crashed
    if attempt.node_at_fault or lost or not _are_pods_healthy(observed, spec, crashed):
        return False
    return attempt.execution <= MAX_IN_PLACE and not _has_same_finding(attempt, observed.job.status.attempts)


def count_delay_in_place(attempts: Sequence[Attempt]) -> int:
    """Seconds from the end of the last attempt to the next one on its RayCluster. The first one has no delay."""
    return 0 if attempts[-1].execution == 1 else count_delay(attempts)


def earlier_execution_remains(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """Processes of an earlier execution may exist on the RayCluster. The status holds their end before what follows is
    submitted."""
    ray = observed.ray
    attempts = observed.job.status.attempts
    clearance_id = observed.clearance_id
    cluster = build_cluster_ready(observed, spec)
    if clearance_id is None or not attempts:
        return None
    if observed.is_head_replaced:
        return _recreate(attempts[-1], cluster, "the head was replaced")
    until = datetime.fromisoformat(attempts[-1].completion_time) + timedelta(seconds=count_delay_in_place(attempts))
    left = (until - now).total_seconds()
    if 0 < left <= count_delay(attempts):  # a clock that was set back delays nothing
        message = f"Attempt {attempts[-1].number + 1} starts on the same Ray cluster in {left:.0f} s."
        return _wait(cluster, Reason.RESTARTING, message, requeue_after=left)
    if ray is None:
        return None
    if cluster.status != "True":
        if left < -CLEARANCE_TIMEOUT_S:
            return _recreate(attempts[-1], cluster, f"after {CLEARANCE_TIMEOUT_S:.0f} s, {cluster.message}")
        return _wait(cluster, Reason.CLEARING, cluster.message)
    clearance = ray.clearance
    if clearance and clearance.job.status == "SUCCEEDED":
        return _wait(cluster, Reason.CLEARING, "No process of the earlier attempt is left.", cleared=True)
    if clearance and clearance.job.status in ("FAILED", "STOPPED"):
        error = extract_error(clearance.log or clearance.job.message) or "it exited without an error message"
        return _recreate(attempts[-1], cluster, error)
    if _is_overdue(ray, now, left):
        waited = ray.unreachable or "processes of the earlier attempt may exist"
        return _recreate(attempts[-1], cluster, f"after {CLEARANCE_TIMEOUT_S:.0f} s, {waited}")
    message = "Waiting until no process of the earlier attempt is left on the Ray cluster."
    if clearance or ray.unreachable:
        return _wait(cluster, Reason.CLEARING, message)
    metadata = {"rlt.dev/job": observed.job.name, "rlt.dev/uid": observed.job.uid}
    name = "the check for processes of the earlier attempt"
    submission = Submission(name, clearance_id, build_clearance_entrypoint(spec), metadata)
    return submit(observed, submission, cluster, ConditionUpdate("False", Reason.CLEARING, message))


def _are_pods_healthy(observed: Observed, spec: RLTrainingJobSpec, crashed: Sequence[Pod]) -> bool:
    """Whether the head has the Ray jobs, and all pods are ready, on healthy nodes, and have lost no container.

    The kubelet starts the containers of the crashed workers again.
    """
    attempt = observed.attempt
    head = observed.head
    pods = observed.cluster_pods
    if attempt is None or head is None or attempt.head_pod_uid != head.uid:
        return False
    others = [pod for pod in pods if pod not in crashed]
    desired = 1 + sum(group.replicas for group in spec.cluster.workers)
    if len(pods) < desired or not all(pod.ready for pod in others):
        return False
    if any(pod.deleting and pod.cluster_uid == attempt.ray_cluster_uid for pod in observed.pods):
        return False
    if any(each.termination and not each.is_init for pod in others for each in pod.containers):
        return False
    known = {node.name for node in observed.nodes}
    return all(pod.node in known for pod in pods) and find_drain(pods, observed.nodes) is None


def _has_same_finding(attempt: Attempt, earlier: Sequence[Attempt]) -> bool:
    """Whether the attempt before on this RayCluster failed in the same way. Unknown ways count as the same."""
    before = [each for each in earlier if each.ray_cluster_uid == attempt.ray_cluster_uid]
    return bool(before) and before[-1].finding == attempt.finding


def _is_overdue(ray: Ray, now: datetime, left: float) -> bool:
    """Whether the check does not end: counted from its start by the clock of the head, or, if Ray does not answer, from
    the end of the delay."""
    started = ray.clearance.job.start_ms if ray.clearance else None
    if started is not None:
        return now.timestamp() - started / 1000 > CLEARANCE_TIMEOUT_S
    return bool(ray.unreachable) and left < -CLEARANCE_TIMEOUT_S


def _wait(
    cluster: ConditionUpdate,
    reason: Reason,
    message: str,
    *,
    cleared: bool = False,
    requeue_after: float = WAITING_INTERVAL_S,
) -> Verdict:
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", reason, message)}
    after = 0.0 if cleared else requeue_after
    return Verdict(message, Phase.PROVISIONING, conditions, cleared=cleared, requeue_after=after)


def _recreate(failed: Attempt, cluster: ConditionUpdate, cause: str) -> Verdict:
    """Make the failed execution the current one, whose RayCluster is then released."""
    message = f"Attempt {failed.number + 1} cannot run on the same Ray cluster: {cause}."
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    return Verdict(message, Phase.PENDING, conditions, execution=failed.execution, requeue_after=0)
