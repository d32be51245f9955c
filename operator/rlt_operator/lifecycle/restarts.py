"""spec.failurePolicy: record a failed attempt, release its cluster and start another attempt.

An attempt is a RayCluster of the job whose training failed. Its uid identifies it, so that no attempt counts twice. The
status holds the attempt before the RayCluster is deleted, and `cluster_missing` creates the next one afterwards. The
run directory stays the same, and the trainer resumes from its latest checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import Attempt, NetworkStatus, Phase
from rlt_core.job import list_excluded_nodes
from rlt_operator.conditions import ConditionUpdate, find_condition, format_time
from rlt_operator.diagnosis.faulty_node import FaultyNode, find_faulty_node
from rlt_operator.lifecycle.preflight import list_preflight_results
from rlt_operator.lifecycle.verdict import Verdict, owned_cluster, release_cluster
from rlt_operator.observation import Observed, RayCluster, is_preflight_submitted, is_submitted

RESTARTABLE = {Reason.PREFLIGHT_FAILED, Reason.PROGRAM_FAILED, Reason.HEAD_LOST}
"""Reasons of Failed after which another attempt may succeed."""
MAX_ATTEMPTS = 32
"""Maximum number of attempts in the status."""
MAX_MESSAGE_LENGTH = 300
"""Maximum number of characters of an attempt's message."""

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
    message = _describe_restart(observed, spec, attempt)
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


def restart_failed_attempt(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Turn the failure of the job into that of one attempt, if the failure is restartable and attempts are left."""
    spec, failed = observed.job.spec, verdict.conditions.get(C.FAILED)
    if spec is None or verdict.phase != Phase.FAILED or failed is None or failed.reason not in RESTARTABLE:
        return verdict
    allowed, cluster = count_allowed_attempts(spec), owned_cluster(observed)
    if allowed == 1 or cluster is None:
        return verdict
    attempt = _build_attempt(observed, cluster, verdict, failed, now)
    verdict = replace(verdict, attempt=attempt, network=_exclude_nodes(observed, attempt))
    if attempt.number < allowed:
        saved = verdict.report.latest_checkpoint_step if verdict.report else None
        message = _describe_restart(observed, spec, attempt, saved)
        conditions = {**verdict.conditions, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
        del conditions[C.FAILED], conditions[C.STALLED]
        return replace(verdict, message=message, phase=Phase.PENDING, conditions=conditions)
    restarts = observed.job.status.restarts or 0
    message = f"{failed.message} (after {restarts} restart{'s' * (restarts > 1)})"
    if attempt.node_at_fault:
        message += f" Node {attempt.node_at_fault} was at fault: {attempt.evidence}."
    final = replace(failed, message=message)
    return replace(verdict, message=message, conditions={**verdict.conditions, C.FAILED: final, C.STALLED: final})


def count_allowed_attempts(spec: RLTrainingJobSpec) -> int:
    """The first attempt and all restarts."""
    return 1 + spec.failure_policy.max_restarts


def find_unreleased_attempt(observed: Observed) -> Attempt | None:
    """The last failed attempt, while its RayCluster or one of its pods exists."""
    attempts, cluster = observed.job.status.attempts, observed.cluster
    if not attempts:
        return None
    uid = attempts[-1].ray_cluster_uid
    exists = cluster.uid == uid if cluster else any(pod.cluster_uid == uid for pod in observed.pods)
    return attempts[-1] if exists else None


def needs_faulty_node(observed: Observed) -> bool:
    """Whether the nodes are needed to find the one at fault."""
    spec = observed.job.spec
    if spec is None or count_allowed_attempts(spec) == 1:
        return False
    if attempt := find_unreleased_attempt(observed):
        return attempt.node_at_fault is None
    ray = observed.ray
    if ray is None or ray.unreachable:
        return False
    job = ray.job or (ray.preflight.job if ray.preflight else None)
    return job.status == "FAILED" if job else is_submitted(observed) or is_preflight_submitted(observed)


def add_attempt(attempts: Sequence[Attempt], attempt: Attempt) -> list[Attempt]:
    """Add or replace the attempt. Beyond MAX_ATTEMPTS, drop the oldest attempt without a node at fault first."""
    kept = [each for each in attempts if each.ray_cluster_uid != attempt.ray_cluster_uid]
    if len(kept) == MAX_ATTEMPTS:
        kept.remove(next((each for each in kept if each.node_at_fault is None), kept[0]))
    return [*kept, attempt]


def _build_attempt(
    observed: Observed, cluster: RayCluster, verdict: Verdict, failed: ConditionUpdate, now: datetime
) -> Attempt:
    status, faulty = observed.job.status, _find_faulty_node(observed)
    ray_job = observed.ray.job if observed.ray else None
    running = find_condition(status, C.RUNNING)
    step = verdict.report.step if verdict.report else None
    if step is None and status.progress and running and running.status != "False":
        step = status.progress.step
    return Attempt(
        number=(status.restarts or 0) + 1,
        ray_cluster_uid=cluster.uid,
        start_time=_format_milliseconds(ray_job.start_ms if ray_job else None),
        completion_time=_format_milliseconds(ray_job.end_ms if ray_job else None) or format_time(now),
        reason=failed.reason,
        message=_truncate_line(failed.message),
        step=step,
        node_at_fault=faulty.name if faulty else None,
        evidence=faulty.evidence if faulty else None,
    )


def _find_faulty_node(observed: Observed) -> FaultyNode | None:
    """From the pods of this RayCluster, or of the last one while they terminate."""
    last = find_unreleased_attempt(observed)
    uid = observed.cluster.uid if observed.cluster else last.ray_cluster_uid if last else None
    pods = sorted((pod for pod in observed.pods if pod.cluster_uid == uid), key=lambda pod: pod.name)
    ray = observed.ray
    checks = list_preflight_results(observed) if ray and ray.preflight else []
    return find_faulty_node(pods, observed.nodes, ray.log if ray else None, checks)


def _exclude_nodes(observed: Observed, attempt: Attempt) -> NetworkStatus | None:
    """The fabric decision with the node at fault excluded; None if that changes nothing."""
    job = observed.job
    attempts = add_attempt(job.status.attempts, attempt)
    excluded = list_excluded_nodes(replace(job, status=job.status.model_copy(update={"attempts": attempts})))
    network = job.status.network
    if network is None or set(excluded) <= set(network.avoided):
        return None
    return network.model_copy(update={"avoided": sorted({*network.avoided, *excluded})})


def _describe_restart(observed: Observed, spec: RLTrainingJobSpec, attempt: Attempt, saved: int | None = None) -> str:
    """`saved` is the step of the latest checkpoint, if it is newer than the status."""
    allowed = count_allowed_attempts(spec)
    message = f"Attempt {attempt.number} of {allowed} failed: {attempt.message.rstrip('.')}."
    if attempt.node_at_fault:
        excluded = " and is excluded" if spec.failure_policy.exclude_faulty_nodes else ""
        message += f" Node {attempt.node_at_fault} was at fault{excluded}: {attempt.evidence}."
    return f"{message} The next attempt {_describe_next_start(observed, spec, saved)}."


def _describe_next_start(observed: Observed, spec: RLTrainingJobSpec, saved: int | None) -> str:
    checkpoint = observed.job.status.checkpoint
    saved = saved if saved is not None or checkpoint is None else checkpoint.latest_step
    if spec.framework.type == "command":
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
