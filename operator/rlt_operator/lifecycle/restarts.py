"""spec.failurePolicy: record an attempt that failed or was disrupted, release its cluster and start another attempt.

An attempt is an execution of the program that ended early. The uid of its RayCluster and its number there identify it,
so that no attempt counts twice. The status holds the attempt before the RayCluster is deleted, and `cluster_missing`
creates the next one afterwards, unless the next attempt runs in place (in_place.py). The run directory stays the same,
and the trainer resumes from its latest checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, Disruption, Phase
from rlt_api.status.network import NetworkStatus
from rlt_core.job import has_ended, list_excluded_nodes
from rlt_operator.conditions import ConditionUpdate, format_time, keep_conditions
from rlt_operator.diagnosis.disruption import LOST_NODE
from rlt_operator.diagnosis.faulty_node import FaultyNode, find_faulty_node
from rlt_operator.diagnosis.findings import find_failures
from rlt_operator.diagnosis.pods import describe_crashes, list_crashed_workers
from rlt_operator.lifecycle.backoff import count_delay, get_next_start
from rlt_operator.lifecycle.in_place import can_retry_in_place, count_delay_in_place
from rlt_operator.lifecycle.shared_verdicts import release_cluster
from rlt_operator.memory.attempts import add_attempt
from rlt_operator.memory.disruption import update_disruption
from rlt_operator.memory.preflight import parse_preflight
from rlt_operator.observation import Observed, RayCluster
from rlt_operator.verdict import Verdict

RESTARTABLE = {
    Reason.PREPARE_FAILED,
    Reason.PREFLIGHT_FAILED,
    Reason.PROGRAM_FAILED,
    Reason.NO_PROGRESS,
    Reason.HEAD_LOST,
    Reason.DISRUPTED,
}
"""Reasons of Failed after which another attempt may succeed. A disruption may cause them, or STOPPED: the preStop hook
of a pod stops the Ray job, so that the program saves a checkpoint while the other pods still run."""
STOP_CAUSE_S = 10.0
"""Time after the end of a stopped Ray job in which the pod is observed whose end stopped it."""
LOST_NODE_CAUSE_S = 75.0
"""Time after them in which Kubernetes reports a lost machine: 50 s without a heartbeat of the kubelet
(node-monitor-grace-period of the kube-controller-manager), rounded up."""
MAX_MESSAGE_LENGTH = 1000
"""Maximum number of characters of an attempt's message. A hang's message has a sentence for each class of actors."""

C = ConditionType


def attempt_failed(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The status holds a failed attempt whose cluster still exists: release it.

    A node may be reported as lost only while its pods terminate. Then the attempt gets its node at fault here.
    """
    attempt = find_unreleased_attempt(observed)
    if attempt is None:
        return None
    if attempt.node_at_fault is None and (faulty := _find_faulty_node(observed)):
        attempt = attempt.model_copy(update={"node_at_fault": faulty.name, "evidence": faulty.evidence})
    attempts = add_attempt(observed.job.status.attempts, attempt)
    message = _describe_restart(observed, spec, attempts)
    conditions = {C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    verdict = release_cluster(
        observed,
        Verdict(message, Phase.PENDING, conditions, attempt=attempt, network=_exclude_nodes(observed, attempt)),
    )
    left = [pod for pod in observed.pods if pod.node and pod.node == attempt.node_at_fault]
    if left and (observed.cluster is None or observed.cluster.deleting):
        stuck = (
            f" Pod {left[0].name} is still terminating on {left[0].node}. If that node is lost, delete it (kubectl "
            "delete node) or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute to continue."
        )
        verdict = replace(verdict, message=verdict.message + stuck)
    return verdict


def restart_delayed(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The cluster of the last attempt is released, and the delay before the next attempt has not passed."""
    attempts = observed.job.status.attempts
    if observed.cluster or not attempts:
        return None
    left = (get_next_start(attempts) - now).total_seconds()
    if not 0 < left <= count_delay(attempts):  # a clock that was set back delays nothing
        return None
    message = _describe_restart(observed, spec, attempts)
    released = ConditionUpdate(
        "False", Reason.RELEASED, f"The Ray cluster of attempt {attempts[-1].number} is released."
    )
    conditions = {C.CLUSTER_READY: released, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    return Verdict(message, Phase.PENDING, conditions, requeue_after=left)


def restart_failed_attempt(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Turn the failure of the job into the end of one attempt, if spec.failurePolicy allows another one."""
    spec = observed.job.spec
    cluster = observed.owned_cluster
    failed = verdict.conditions.get(C.FAILED)
    if spec is None or cluster is None or verdict.phase != Phase.FAILED or failed is None:
        return verdict
    if failed.reason not in (*RESTARTABLE, Reason.STOPPED):
        return verdict
    disruption = update_disruption(observed, verdict, now, observed.nodes)
    if disruption is None and _count_seconds_since_end(observed, now) < _count_seconds_to_cause(observed, failed):
        return _await_cause(observed, verdict)
    if disruption:
        failed = replace(failed, reason=Reason.DISRUPTED, message=f"{disruption.message}.")
    elif failed.reason == Reason.STOPPED:
        crash = describe_crashes(observed)
        if crash is None:
            return verdict
        failed = replace(failed, reason=Reason.PROGRAM_FAILED, message=f"The Ray job ended with a container. {crash}")
    attempt = _build_attempt(observed, cluster, verdict, failed, disruption, now)
    if _allows_restart(observed, spec, attempt):
        return _restart(observed, spec, verdict, attempt)
    final = replace(failed, message=_describe_end(observed, spec, attempt, failed.message))
    ended = ConditionUpdate("False", final.reason, "The job has ended.")
    conditions = {**verdict.conditions, C.FAILED: final, C.STALLED: final, C.RUNNING: ended}
    verdict = replace(verdict, message=final.message, conditions=conditions)
    if attempt.number == 1 and spec.failure_policy.max_restarts == 0:
        return verdict
    return replace(verdict, attempt=attempt, network=_exclude_nodes(observed, attempt))


def _restart(observed: Observed, spec: RLTrainingJobSpec, verdict: Verdict, attempt: Attempt) -> Verdict:
    """The verdict about the end of an attempt that another one follows."""
    attempts = add_attempt(observed.job.status.attempts, attempt)
    in_place = can_retry_in_place(observed, spec, attempt)
    saved = verdict.report.latest_checkpoint_step if verdict.report else None
    message = _describe_restart(observed, spec, attempts, saved=saved, in_place=in_place)
    conditions = {**verdict.conditions, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    del conditions[C.FAILED], conditions[C.STALLED]
    if in_place:
        conditions.pop(C.RECONCILING, None)  # nothing is released
    verdict = replace(verdict, message=message, phase=Phase.PENDING, conditions=conditions, attempt=attempt)
    execution = attempt.execution + 1 if in_place else None
    return replace(verdict, execution=execution, network=_exclude_nodes(observed, attempt))


def find_unreleased_attempt(observed: Observed) -> Attempt | None:
    """The last failed attempt, while its RayCluster or one of its pods exists, unless the next one runs there."""
    attempts = observed.job.status.attempts
    current = observed.job.status.current_attempt
    cluster = observed.cluster
    if not attempts:
        return None
    if current and current.ray_cluster_uid == attempts[-1].ray_cluster_uid and not has_ended(current, attempts):
        return None
    uid = attempts[-1].ray_cluster_uid
    exists = cluster.uid == uid if cluster else any(pod.cluster_uid == uid for pod in observed.pods)
    return attempts[-1] if exists else None


def needs_faulty_node(observed: Observed) -> bool:
    """Whether the nodes are needed: to find the one at fault, and to distinguish a disruption from a failure."""
    if observed.job.spec is None:
        return False
    if attempt := find_unreleased_attempt(observed):
        return attempt.node_at_fault is None
    ray = observed.ray
    if ray is None or ray.unreachable:
        return False
    if ray.latest:
        return ray.latest.status == "FAILED"
    return observed.is_submitted or observed.is_preflight_submitted or observed.is_step_submitted


def _build_attempt(
    observed: Observed,
    cluster: RayCluster,
    verdict: Verdict,
    failed: ConditionUpdate,
    disruption: Disruption | None,
    now: datetime,
) -> Attempt:
    status = observed.job.status
    faulty = _find_faulty_node(observed)
    ray_job = observed.ray.job if observed.ray else None
    step = verdict.report.step if verdict.report else None
    if step is None and status.progress and status.active_since:
        step = status.progress.step
    return Attempt(
        number=(status.restarts or 0) + (status.disruptions or 0) + 1,
        ray_cluster_uid=cluster.uid,
        execution=observed.attempt.execution if observed.attempt else 1,
        start_time=_format_milliseconds(ray_job.start_ms if ray_job else None),
        completion_time=format_time(now),  # the next start is computed from it, by the same clock
        reason=failed.reason,
        disruption=disruption.reason if disruption else None,
        message=_truncate_line(failed.message),
        step=step,
        node_at_fault=faulty.name if faulty else None,
        evidence=faulty.evidence if faulty else None,
        finding=_find_code(observed) if failed.reason == Reason.PROGRAM_FAILED else None,
    )


def _find_code(observed: Observed) -> str | None:
    """The code of the known failure that explains the end of the program best. Only a retry in place depends on it."""
    spec = observed.job.spec
    if spec is None or spec.failure_policy.restart_policy != "InPlace":
        return None
    return next((each.code for each in find_failures(observed) if each.severity == "error"), None)


def _find_faulty_node(observed: Observed) -> FaultyNode | None:
    """From the pods of this RayCluster, or of the last one while they terminate."""
    last = find_unreleased_attempt(observed)
    uid = observed.cluster.uid if observed.cluster else last.ray_cluster_uid if last else None
    pods = sorted((pod for pod in observed.pods if pod.cluster_uid == uid), key=lambda pod: pod.name)
    ray = observed.ray
    preflight = observed.preflight
    checks = parse_preflight(preflight.log or "", observed.cluster_pods) if preflight else []
    return find_faulty_node(pods, observed.nodes, ray.log if ray else None, checks)


def _exclude_nodes(observed: Observed, attempt: Attempt) -> NetworkStatus | None:
    """The fabric decision with the node at fault excluded; None if that changes nothing."""
    job = observed.job
    attempts = add_attempt(job.status.attempts, attempt)
    excluded = list_excluded_nodes(replace(job, status=job.status.model_copy(update={"attempts": attempts})))
    network = job.status.network
    if network is None or set(excluded) <= set(network.excluded_nodes):
        return None
    return network.model_copy(update={"excluded_nodes": sorted({*network.excluded_nodes, *excluded})})


def _allows_restart(observed: Observed, spec: RLTrainingJobSpec, attempt: Attempt) -> bool:
    """Whether the budget for failures, or that for disruptions, is not used up."""
    status = observed.job.status
    policy = spec.failure_policy
    if attempt.disruption:
        return policy.max_disruptions is None or (status.disruptions or 0) < policy.max_disruptions
    return (status.restarts or 0) < policy.max_restarts


def _count_seconds_to_cause(observed: Observed, failed: ConditionUpdate) -> float:
    """Seconds after the end of the program in which a disruption may be observed that ended it."""
    if failed.reason == Reason.STOPPED:
        return STOP_CAUSE_S
    log = (observed.ray.log if observed.ray else None) or ""
    return LOST_NODE_CAUSE_S if LOST_NODE.search(log) and not list_crashed_workers(observed) else 0


def _count_seconds_since_end(observed: Observed, now: datetime) -> float:
    """Seconds since the end of the Ray job; infinite if it is unknown or, by the clock of the head, in the future."""
    ray = observed.ray
    job = ray.latest if ray else None
    seconds = now.timestamp() - job.end_ms / 1000 if job and job.end_ms is not None else math.inf
    return seconds if seconds >= 0 else math.inf


def _await_cause(observed: Observed, verdict: Verdict) -> Verdict:
    """The conditions of the status, until it is known whether a disruption ended the Ray job."""
    others = [condition_type for condition_type in C if condition_type not in (C.FAILED, C.STALLED)]
    kept = keep_conditions(observed.job.status, *others)
    message = f"The Ray job has ended. Waiting for a disruption that explains it: {verdict.message}"
    for pod in observed.pods:
        if pod.node and pod.name in verdict.message:
            message += f" Pod {pod.name} is on node {pod.node}."
    return Verdict(message, conditions=kept, report=verdict.report)


def _describe_end(observed: Observed, spec: RLTrainingJobSpec, attempt: Attempt, message: str) -> str:
    """The message of the last attempt."""
    policy = spec.failure_policy
    restarts = observed.job.status.restarts or 0
    if attempt.disruption:
        message += f" spec.failurePolicy.maxDisruptions is {policy.max_disruptions}."
    elif restarts:
        message += f" (after {restarts} restart{'s' * (restarts > 1)})"
    if attempt.node_at_fault and policy.max_restarts:
        message += f" Node {attempt.node_at_fault} was at fault: {attempt.evidence}."
    return message


def _describe_restart(
    observed: Observed,
    spec: RLTrainingJobSpec,
    attempts: Sequence[Attempt],
    *,
    saved: int | None = None,
    in_place: bool = False,
) -> str:
    """`saved` is the step of the latest checkpoint, if it is newer than the status."""
    attempt = attempts[-1]
    policy = spec.failure_policy
    status = observed.job.status
    message = f"Attempt {attempt.number} was disrupted: {attempt.message.rstrip('.')}."
    if attempt.disruption is None:
        restart = (status.restarts or 0) + (not has_ended(attempt, status.attempts))
        message = f"Attempt {attempt.number} failed, restart {restart} of {policy.max_restarts}: "
        message += f"{attempt.message.rstrip('.')}."
    if attempt.node_at_fault:
        excluded = " and is excluded" if policy.exclude_faulty_nodes else ""
        message += f" Node {attempt.node_at_fault} was at fault{excluded}: {attempt.evidence}."
    if in_place:
        delay = count_delay_in_place(attempts)
        starts = f"starts after {delay} s on the same Ray cluster, and " if delay else "uses the same Ray cluster, and "
    else:
        delay = count_delay(attempts)
        starts = f"starts after {delay} s, at {format_time(get_next_start(attempts))}, and " if delay else ""
    return f"{message} The next attempt {starts}{_describe_next_start(observed, spec, saved)}."


def _describe_next_start(observed: Observed, spec: RLTrainingJobSpec, saved: int | None) -> str:
    checkpoint = observed.job.status.checkpoint
    saved = saved if saved is not None or checkpoint is None else checkpoint.latest_step
    if not get_framework(spec).reads_fields:
        return "runs the command again"
    if saved is not None and spec.checkpoint.resume != "never":
        return f"resumes from step {saved}"
    return "starts from the beginning" if spec.checkpoint.resume != "path" else "starts from checkpoint.resumeFromPath"


def _truncate_line(message: str) -> str:
    """One line. Of a long message the end, which usually holds the error."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"…{line[-MAX_MESSAGE_LENGTH:]}"


def _format_milliseconds(milliseconds: int | None) -> str | None:
    return format_time(datetime.fromtimestamp(milliseconds / 1000, UTC)) if milliseconds else None
