"""spec.failurePolicy.restartPolicy InPlace: another execution of a failed program on the same RayCluster.

The status that records the failed attempt makes the next execution the current one, so that the RayCluster stays. The
program of that execution waits for the end of the earlier one's processes beside its imports (rlt_pod/clear.py). If it
ends because of them, the earlier execution becomes the current one again, and its RayCluster is released as after any
failed attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, Phase
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.disruption import DELETED, LOST_NODE, find_drain, list_drain_taints
from rlt_operator.diagnosis.pods import list_crashed_workers
from rlt_operator.diagnosis.progress import extract_error, find_exit_code
from rlt_operator.lifecycle.backoff import count_delay
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.memory.disruption import list_pods
from rlt_operator.observation import Observed, Pod
from rlt_operator.verdict import WAITING_INTERVAL_S, Verdict
from rlt_pod.clear import NOT_CLEAR

MAX_IN_PLACE = 3
"""Maximum number of executions in place on a RayCluster. Different failures in a row point to something that they have
in common, such as the full disk of a pod, which only new pods remove. A new RayCluster costs one to two minutes."""
PODS_TIMEOUT_S = 120.0
"""Time in which a worker whose container has ended is ready again, a deleted one is replaced, and Ray answers."""

C = ConditionType


def can_retry_in_place(observed: Observed, spec: RLTrainingJobSpec, attempt: Attempt) -> bool:
    """Whether the attempt, which has failed now and may be followed by another one, leaves a healthy RayCluster."""
    ray = observed.ray
    end = ray.job.status if ray and ray.job else None
    if spec.failure_policy.restart_policy != "InPlace" or observed.stop_request or observed.job.is_suspended:
        return False
    if attempt.node_at_fault or attempt.execution > MAX_IN_PLACE:
        return False
    if attempt.disruption == DELETED and end in ("FAILED", "STOPPED"):  # the preStop hook of the pod stops the program
        is_healthy = _can_replace_pods(observed)
    elif attempt.reason == Reason.PROGRAM_FAILED and end == "FAILED":
        crashed = list_crashed_workers(observed)
        lost = LOST_NODE.search((ray.log if ray else None) or "") and not crashed
        is_healthy = not lost and _are_pods_healthy(observed, spec, crashed)
    else:
        is_healthy = False
    return is_healthy and not _has_same_end(attempt, observed.job.status.attempts)


def count_delay_in_place(attempts: Sequence[Attempt]) -> int:
    """Seconds from the end of the last attempt to the next one on its RayCluster. The first one has no delay."""
    return 0 if attempts[-1].execution == 1 else count_delay(attempts)


def earlier_execution_remains(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The program, or the preflight checks before it, has ended because processes of an earlier execution may exist.

    A program that ends with this exit code by itself gets a new RayCluster, where the code has no meaning.
    """
    attempt = observed.attempt
    attempts = observed.job.status.attempts
    if attempt is None or attempt.execution == 1 or not attempts or observed.ray is None:
        return None
    before = observed.ray.preflight
    ended = observed.ray.job or (before.job if before else None)
    evicted = observed.cluster is not None and observed.cluster.suspend
    if ended is None or ended.status != "FAILED" or find_exit_code(ended.message) != NOT_CLEAR or evicted:
        return None
    log = observed.ray.log or (before.log if before else None) or ""
    error = extract_error(log) or "processes of the earlier attempt may exist"
    return _recreate(attempts[-1], build_cluster_ready(observed, spec), error)


def execution_delayed(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The next execution waits for its delay, for the pods that the earlier one has lost, or for an answer of Ray."""
    attempts = observed.job.status.attempts
    if not observed.is_between_executions or not attempts:
        return None
    cluster = build_cluster_ready(observed, spec)
    if observed.is_head_replaced:
        return _recreate(attempts[-1], cluster, "the head was replaced")
    until = datetime.fromisoformat(attempts[-1].completion_time) + timedelta(seconds=count_delay_in_place(attempts))
    left = (until - now).total_seconds()
    if 0 < left <= count_delay(attempts):  # a clock that was set back delays nothing
        message = f"Attempt {attempts[-1].number + 1} starts on the same Ray cluster in {left:.0f} s."
        return _wait(cluster, Reason.RESTARTING, message, requeue_after=left)
    if observed.ray is None:
        return None
    missing = _describe_missing_pods(observed, cluster)
    waiting = missing or observed.ray.unreachable
    if waiting and left < -PODS_TIMEOUT_S:
        return _recreate(attempts[-1], cluster, f"after {PODS_TIMEOUT_S:.0f} s, {waiting}")
    return _wait(cluster, Reason.WAITING_FOR_CLUSTER, missing) if missing else None


def _has_recorded_head(observed: Observed) -> bool:
    """Whether the head has the Ray jobs of this RayCluster, and is ready."""
    attempt = observed.attempt
    head = observed.head
    return attempt is not None and head is not None and attempt.head_pod_uid == head.uid and head.ready


def _can_replace_pods(observed: Observed) -> bool:
    """Whether KubeRay can replace the workers that were deleted: the head stays, and so do the nodes.

    After a stop by the preStop hook of a pod, only the nodes of the other pods are known.
    """
    nodes = {node.name: node for node in observed.nodes or observed.pod_nodes}
    left = [nodes[pod.node] for pod in list_pods(observed) if pod.node in nodes]
    is_stable = bool(left) and all(node.ready and not list_drain_taints(node) for node in left)
    return is_stable and _has_recorded_head(observed)


def _describe_missing_pods(observed: Observed, cluster: ConditionUpdate) -> str | None:
    """What the pods of the next execution wait for; None if they are complete, and all others are gone."""
    uid = observed.cluster.uid if observed.cluster else None
    terminating = [pod.name for pod in observed.pods if pod.deleting and pod.cluster_uid == uid]
    if cluster.status != "True":
        return cluster.message
    return f"Pod {terminating[0]} is terminating." if terminating else None


def _are_pods_healthy(observed: Observed, spec: RLTrainingJobSpec, crashed: Sequence[Pod]) -> bool:
    """Whether the head has the Ray jobs, and all pods are ready, on healthy nodes, and have lost no container.

    The kubelet starts the containers of the crashed workers again.
    """
    pods = observed.cluster_pods
    if not _has_recorded_head(observed):
        return False
    others = [pod for pod in pods if pod not in crashed]
    desired = 1 + sum(group.replicas for group in spec.cluster.workers)
    if len(pods) < desired or not all(pod.ready for pod in others):
        return False
    if any(pod.deleting and pod.cluster_uid == pods[0].cluster_uid for pod in observed.pods):
        return False
    if any(each.termination and not each.is_init for pod in others for each in pod.containers):
        return False
    known = {node.name for node in observed.nodes}
    return all(pod.node in known for pod in pods) and find_drain(pods, observed.nodes) is None


def _has_same_end(attempt: Attempt, earlier: Sequence[Attempt]) -> bool:
    """Whether the attempt before on this RayCluster ended in the same way. Unknown failures count as the same."""
    before = [(each.reason, each.finding) for each in earlier if each.ray_cluster_uid == attempt.ray_cluster_uid]
    return before[-1:] == [(attempt.reason, attempt.finding)]


def _wait(
    cluster: ConditionUpdate, reason: Reason, message: str, *, requeue_after: float = WAITING_INTERVAL_S
) -> Verdict:
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", reason, message)}
    return Verdict(message, Phase.PROVISIONING, conditions, requeue_after=requeue_after)


def _recreate(failed: Attempt, cluster: ConditionUpdate, cause: str) -> Verdict:
    """Make the failed execution the current one, whose RayCluster is then released."""
    message = f"Attempt {failed.number + 1} cannot run on the same Ray cluster: {cause}."
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    return Verdict(message, Phase.PENDING, conditions, execution=failed.execution, requeue_after=0)
