"""The sandbox pods of a job: how many are free and in use, and why none is free. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlt_api.spec.training_config import SandboxReport
from rlt_api.status.job_status import FailureFinding, SandboxStatus
from rlt_core import names
from rlt_core.children.sandboxes import AGENT_SANDBOX, get_sandbox
from rlt_core.job import Manifest
from rlt_core.knowledge.entries import load_entries
from rlt_operator.diagnosis.pods import CONFIG_REASONS, IMAGE_REASONS, truncate
from rlt_operator.diagnosis.progress import round_metric
from rlt_operator.manifests import parse_pod
from rlt_operator.observation import Observed, Pod, SandboxPool, SandboxProblem, WarningEvent

ENDED_BY_OTHERS = (0, 128 + 9, 128 + 15)
"""Exit codes of a server that was released, or killed for its memory or with its node."""


def track_pool(previous: SandboxPool | None, observed: Observed) -> SandboxPool:
    """The pool of the current head as it was read last, or as the status has it after a start of the operator."""
    head = observed.head
    name = names.sandbox_pool(observed.job.name, head_uid=head.uid) if head else None
    if previous and previous.name == name:
        return previous
    old = observed.job.status.sandboxes or SandboxStatus()
    sandbox = get_sandbox(observed.job.spec) if observed.job.spec else None
    size = sandbox.pool_size if sandbox and sandbox.provider == AGENT_SANDBOX else 0
    return SandboxPool(name, ready=old.ready, claimed=old.claimed, sandboxes=size)


def update_pool(
    pool: SandboxPool, job: Manifest, pods: Iterable[Manifest], warnings: Sequence[WarningEvent]
) -> SandboxPool:
    """The pool after a read of its Job, of its pods that are pending or have failed, and of the Job's warnings."""
    status = job.get("status") or {}
    active = status.get("active") or 0
    is_full = active >= job["spec"]["parallelism"]
    rejections = [each.message for each in warnings if each.reason == "FailedCreate" and not is_full]
    return _update(pool, [parse_pod(each) for each in pods], active, status.get("ready") or 0, rejections)


def update_sandboxes(pool: SandboxPool, pods: Iterable[Manifest], without_pod: Manifest | None) -> SandboxPool:
    """The pool after a read of its pods, and of a Sandbox that has none, if there is one.

    agent-sandbox writes why it could not create the pod into the condition Ready (v0.5.6, computeReadyCondition).
    """
    parsed = [parse_pod(each) for each in pods]
    active = [pod for pod in parsed if pod.phase in ("Pending", "Running") and not pod.deleting]
    conditions = ((without_pod or {}).get("status") or {}).get("conditions") or []
    rejections = [each["message"] for each in conditions if each.get("reason") == "ReconcilerError"]
    return _update(pool, parsed, len(active), sum(pod.ready for pod in active), rejections)


def _update(pool: SandboxPool, pods: Sequence[Pod], active: int, ready: int, rejections: Sequence[str]) -> SandboxPool:
    """The pool with these numbers and pods, and the messages about pods that were not created.

    A claimed pod is not ready: it is active, and not pending. A server that starts counts for a second, too.
    The problem stays the same while its code does: the messages of the kubelet alternate.
    """
    starting = [pod for pod in pods if pod.phase == "Pending" and not pod.deleting]
    claimed = max(0, active - ready - len(starting))
    problem = None
    if ready == 0:
        failed = [pod for pod in pods if pod.phase == "Failed"] if claimed == 0 else []
        problem = _find_problem(starting, failed, rejections)
    if problem and pool.problem and problem.code == pool.problem.code:
        problem = pool.problem
    return replace(pool, ready=ready, claimed=claimed, problem=problem)


def find_sandbox_problem(observed: Observed) -> list[FailureFinding]:
    """The finding about a pool without a free pod, if its pods show why."""
    problem = observed.sandboxes.problem if observed.sandboxes else None
    return [
        FailureFinding(
            code=entry.code,
            severity=entry.severity,
            message=entry.message,
            pod=problem.pod,
            evidence=problem.evidence,
            remedy=entry.remedy,
            source=entry.source,
        )
        for entry in load_entries()
        if problem and entry.code == problem.code
    ]


def add_claims(sandboxes: SandboxStatus | None, report: SandboxReport | None) -> SandboxStatus | None:
    """The status of the pool with the claims of a report."""
    if sandboxes is None or report is None:
        return sandboxes
    return sandboxes.model_copy(
        update={
            "failed": report.failed,
            "claim_seconds_p50": round_metric(report.claim_seconds_p50),
            "claim_seconds_p99": round_metric(report.claim_seconds_p99),
        }
    )


def _find_problem(starting: Sequence[Pod], failed: Sequence[Pod], rejections: Sequence[str]) -> SandboxProblem | None:
    """The first cause: images, containers, nodes, quota and admission, then servers that end at their start."""
    waiting = [(pod, each) for pod in starting for each in pod.containers if each.waiting_reason]
    for code, reasons in (("SandboxImageNotPulled", IMAGE_REASONS), ("SandboxPodsFail", CONFIG_REASONS)):
        for pod, container in waiting:
            if container.waiting_reason in reasons:
                text = f"{container.waiting_reason}: {container.waiting_message or 'no message from the kubelet'}"
                return SandboxProblem(code, truncate(text), pod.name)
    for pod in starting:
        if pod.unschedulable:
            return SandboxProblem("SandboxPodsUnschedulable", truncate(pod.unschedulable), pod.name)
    for message in rejections:
        return SandboxProblem("SandboxPodsNotCreated", truncate(message))
    for pod in failed:
        for container in pod.containers:
            end = container.termination
            if end and end.exit_code not in ENDED_BY_OTHERS:
                text = f"{end.reason}, exit code {end.exit_code}: {end.message}".removesuffix(": ")
                return SandboxProblem("SandboxPodsFail", truncate(text), pod.name)
    return None
