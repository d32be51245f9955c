"""status.findings: the known failures of the latest attempt that ended early, or of a first cluster that is not ready.

The first one of an attempt is part of the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import FailureFinding
from rlt_operator.conditions import ConditionUpdate, find_condition, is_true
from rlt_operator.diagnosis.findings import find_failures
from rlt_operator.diagnosis.pods import diagnose
from rlt_operator.lifecycle.verdict import Verdict
from rlt_operator.observation import Observed

C = ConditionType


EXPLAINED = {
    Reason.PENDING_DEADLINE_EXCEEDED,
    Reason.PREFLIGHT_FAILED,
    Reason.PROGRAM_FAILED,
    Reason.NO_PROGRESS,
    Reason.HEAD_LOST,
}
"""Reasons of failures that the evidence may explain. The others, such as Disrupted, name their cause."""


def set_findings(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Find the known failures when an attempt ends early, and keep them until another attempt runs. Before the first
    attempt, find those that explain why the cluster is not ready."""
    status, running = observed.job.status, verdict.conditions.get(C.RUNNING)
    if running is not None and running.status == "True":
        return replace(verdict, findings=())
    ended = [update for type, update in verdict.conditions.items() if _reports_end(type, update)]
    if is_true(status, C.FAILED):
        return verdict
    if not ended:
        return verdict if status.attempts else _find_causes_of_waiting(observed, verdict)
    attempt = verdict.attempt or (status.attempts[-1] if status.attempts else None)
    if attempt and any(each.ray_cluster_uid == attempt.ray_cluster_uid for each in status.attempts):
        return _add_best(verdict, status.findings)  # recorded before; its message is made again
    reason = attempt.reason if attempt else ended[0].reason
    findings = tuple(find_failures(observed)) if reason in EXPLAINED else ()
    return replace(_add_best(verdict, findings), findings=findings)


def _find_causes_of_waiting(observed: Observed, verdict: Verdict) -> Verdict:
    """Find the failures again only with another reason of ClusterReady, which changes the status in any case: the
    messages of the kubelet alternate while it retries."""
    update, old = verdict.conditions.get(C.CLUSTER_READY), find_condition(observed.job.status, C.CLUSTER_READY)
    if update is None or (old and old.reason == update.reason):
        return verdict
    return replace(verdict, findings=tuple(find_failures(observed)) if diagnose(observed) else ())


def _reports_end(type: ConditionType, update: ConditionUpdate) -> bool:
    """Whether the condition has the message about the end of an attempt."""
    return (type == C.FAILED and update.status == "True") or (type == C.RUNNING and update.reason == Reason.RESTARTING)


def _add_best(verdict: Verdict, findings: Sequence[FailureFinding]) -> Verdict:
    """Add the first finding, if it is an error, to the messages about the end of the attempt."""
    if not findings or findings[0].severity != "error":
        return verdict
    conditions = dict(verdict.conditions)
    for type, update in verdict.conditions.items():
        if _reports_end(type, update) or (type == C.STALLED and update.status == "True"):
            conditions[type] = replace(update, message=_add(update.message, findings[0]))
    return replace(verdict, message=_add(verdict.message, findings[0]), conditions=conditions)


def _add(message: str, finding: FailureFinding) -> str:
    period = "" if message.endswith((".", ")")) else "."
    return f"{message}{period} {finding.code}: {finding.remedy}"
