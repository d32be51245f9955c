"""spec.failurePolicy: an attempt that has failed is written down, its cluster released, and another one follows.

The attempt is in the status before its RayCluster is deleted, and `create` makes the next one once it is gone. The run
directory stays the same, so that the trainer goes on from its latest checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Attempt, NetworkStatus, Phase
from rlt_core.job import list_excluded_nodes
from rlt_operator.conditions import ConditionUpdate, condition, timestamp
from rlt_operator.diagnosis.faulty_node import Fault, node_at_fault
from rlt_operator.lifecycle.attempts import RESTARTABLE, attempts_allowed, given_up, with_attempt
from rlt_operator.lifecycle.preflight_results import preflight_results
from rlt_operator.lifecycle.verdict import Verdict, own_cluster, release
from rlt_operator.observation import Observed

MAX_MESSAGE_LENGTH = 300
"""Characters of an attempt's message."""

C = ConditionType


def restarting(observed: Observed, now: datetime) -> Verdict | None:
    """The attempt is written down: its cluster goes. A node that is lost may become known as such only meanwhile."""
    attempt = given_up(observed)
    if attempt is None:
        return None
    if attempt.node_at_fault is None and (fault := _fault(observed)):
        attempt = attempt.model_copy(update={"node_at_fault": fault.node, "evidence": fault.evidence})
    message = _message(observed, attempt)
    claims = {C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
    told = Verdict(message, Phase.PENDING, claims, attempt=attempt, network=_network(observed, attempt))
    verdict = release(observed, told)
    left = [pod for pod in observed.pods if pod.node and pod.node == attempt.node_at_fault]
    if left and (observed.cluster is None or observed.cluster.deleting):
        stuck = (
            f" Pod {left[0].name} has not ended on {left[0].node}: if that node is lost, delete it (kubectl delete "
            "node) or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and the job goes on."
        )
        verdict = replace(verdict, message=verdict.message + stuck)
    return verdict


def restarted(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """The verdict that the job has failed, as that of one attempt: the job's own only if there is no other to come."""
    failed, status = verdict.claims.get(C.FAILED), observed.job.status
    allowed = attempts_allowed(observed)
    if verdict.phase != Phase.FAILED or failed is None or failed.reason not in RESTARTABLE:
        return verdict
    if allowed == 1 or not own_cluster(observed):
        return verdict
    attempt = _attempt(observed, verdict, failed, now)
    verdict = replace(verdict, attempt=attempt, network=_network(observed, attempt))
    if attempt.number < allowed:
        saved = verdict.report.latest_checkpoint_step if verdict.report else None
        message = _message(observed, attempt, saved)
        claims = {**verdict.claims, C.RUNNING: ConditionUpdate("False", Reason.RESTARTING, message)}
        del claims[C.FAILED], claims[C.STALLED]
        return replace(verdict, message=message, phase=Phase.PENDING, claims=claims)
    restarts = status.restarts or 0
    message = f"{failed.message} (after {restarts} restart{'s' * (restarts > 1)})"
    if attempt.node_at_fault:
        message += f" Node {attempt.node_at_fault} was at fault: {attempt.evidence}."
    final = replace(failed, message=message)
    return replace(verdict, message=message, claims={**verdict.claims, C.FAILED: final, C.STALLED: final})


def _attempt(observed: Observed, verdict: Verdict, failed: ConditionUpdate, now: datetime) -> Attempt:
    assert observed.cluster
    status, fault = observed.job.status, _fault(observed)
    ray_job = observed.ray.job if observed.ray else None
    running = condition(status, C.RUNNING)
    step = verdict.report.step if verdict.report else None
    if step is None and status.progress and running and running.status != "False":
        step = status.progress.step
    return Attempt(
        number=(status.restarts or 0) + 1,
        ray_cluster_uid=observed.cluster.uid,
        start_time=_time(ray_job.start_ms if ray_job else None),
        completion_time=_time(ray_job.end_ms if ray_job else None) or timestamp(now),
        reason=failed.reason,
        message=_short(failed.message),
        step=step,
        node_at_fault=fault.node if fault else None,
        evidence=fault.evidence if fault else None,
    )


def _fault(observed: Observed) -> Fault | None:
    """By the pods of this RayCluster, or of the last one while they end."""
    last = given_up(observed)
    uid = observed.cluster.uid if observed.cluster else last.ray_cluster_uid if last else None
    pods = sorted((pod for pod in observed.pods if pod.cluster_uid == uid), key=lambda pod: pod.name)
    ray = observed.ray
    checks = preflight_results(observed) if ray and ray.preflight else []
    return node_at_fault(pods, observed.nodes, ray.log if ray else None, checks)


def _network(observed: Observed, attempt: Attempt) -> NetworkStatus | None:
    """What was decided, but for the node at fault. None: as before."""
    job = observed.job
    attempts = with_attempt(job.status.attempts, attempt)
    excluded = list_excluded_nodes(replace(job, status=job.status.model_copy(update={"attempts": attempts})))
    network = job.status.network
    if network is None or set(excluded) <= set(network.avoided):
        return None
    return network.model_copy(update={"avoided": sorted({*network.avoided, *excluded})})


def _message(observed: Observed, attempt: Attempt, saved: int | None = None) -> str:
    """`saved` is the step of the latest checkpoint, where more is known of it than the status says."""
    spec = observed.job.spec
    assert spec
    said = f"Attempt {attempt.number} of {attempts_allowed(observed)} failed: {attempt.message.rstrip('.')}."
    if attempt.node_at_fault:
        avoided = " and is avoided" if spec.failure_policy.exclude_faulty_nodes else ""
        said += f" Node {attempt.node_at_fault} was at fault{avoided}: {attempt.evidence}."
    return f"{said} The next one {_continuation(observed, saved)}."


def _continuation(observed: Observed, saved: int | None) -> str:
    spec, checkpoint = observed.job.spec, observed.job.status.checkpoint
    assert spec
    saved = saved if saved is not None or checkpoint is None else checkpoint.latest_step
    if spec.framework.type == "command":
        return "runs the command again"
    if saved is not None and spec.checkpoint.resume != "never":
        return f"goes on from step {saved}"
    return "starts anew" if spec.checkpoint.resume != "path" else "starts from checkpoint.resumeFromPath"


def _short(message: str) -> str:
    """In one line; of a long one the end, where a program says what it was."""
    words = " ".join(message.split())
    return words if len(words) <= MAX_MESSAGE_LENGTH else f"…{words[-MAX_MESSAGE_LENGTH:]}"


def _time(milliseconds: int | None) -> str | None:
    return timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC)) if milliseconds else None
