"""status.findings: the known failures of the latest attempt that ended early, or of a first cluster that is not ready,
and, while the program runs, problems of its nodes and sandbox pods and broken rules over the metrics.

The first one of an attempt is part of the message, and its code is the reason of Failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Condition, FailureFinding
from rlt_core.job import has_ended
from rlt_core.knowledge.fallback import UNKNOWN
from rlt_operator.conditions import ConditionUpdate, find_condition
from rlt_operator.diagnosis.findings import MAX_FINDINGS, find_failures, find_node_problems
from rlt_operator.diagnosis.metric_findings import find_broken_rules
from rlt_operator.diagnosis.pods import diagnose, truncate
from rlt_operator.diagnosis.sandboxes import find_sandbox_problem
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

QUOTED = 30
"""Number of characters at the end of an evidence that show that a message quotes it."""

C = ConditionType


EXPLAINED = {
    Reason.PENDING_DEADLINE_EXCEEDED,
    Reason.PREPARE_FAILED,
    Reason.PREFLIGHT_FAILED,
    Reason.PROGRAM_FAILED,
    Reason.NO_PROGRESS,
    Reason.HEAD_LOST,
}
"""Reasons of failures that the evidence may explain. The others, such as Disrupted, name their cause."""


def set_findings(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Find the known failures when an attempt ends early, and keep them until another attempt runs. Before the first
    attempt, find those that explain why the cluster is not ready. While the program runs, find the problems of
    its nodes and sandbox pods and, also at its end, the broken rules over the metrics. A suspended job keeps its
    findings."""
    status = observed.job.status
    running = verdict.conditions.get(C.RUNNING)
    succeeded = verdict.conditions.get(C.SUCCEEDED)
    if observed.job.has_ended:
        return verdict
    if any(update is not None and update.status == "True" for update in (running, succeeded)):
        report = verdict.report or (observed.ray.progress if observed.ray else None)
        problems = [*find_node_problems(observed), *find_sandbox_problem(observed)] if succeeded is None else []
        return replace(verdict, findings=(*problems, *find_broken_rules(report))[:MAX_FINDINGS])
    if C.SUSPENDED in verdict.conditions:
        return verdict
    ended = [update for condition_type, update in verdict.conditions.items() if _reports_end(condition_type, update)]
    if not ended:
        return verdict if status.attempts else _find_causes_of_waiting(observed, verdict)
    attempt = verdict.attempt or (status.attempts[-1] if status.attempts else None)
    if attempt and has_ended(attempt, status.attempts):
        return _add_best(verdict, status.findings)  # recorded before; its message is made again
    reason = attempt.reason if attempt else ended[0].reason
    message = _quote(find_condition(status, C.CLUSTER_READY))
    failures = [*find_failures(observed, message), *find_sandbox_problem(observed)] if reason in EXPLAINED else []
    findings = (*failures, *find_broken_rules(verdict.report))[:MAX_FINDINGS]
    return replace(_add_best(verdict, findings), findings=findings)


def _find_causes_of_waiting(observed: Observed, verdict: Verdict) -> Verdict:
    """Find the failures again only with another reason of ClusterReady, which changes the status in any case: the
    messages of the kubelet alternate while it retries. The scheduler's messages do not, and
    another resource may be missing."""
    status = observed.job.status
    update = verdict.conditions.get(C.CLUSTER_READY)
    old = find_condition(status, C.CLUSTER_READY)
    is_same = old is not None and update is not None and old.reason == update.reason
    if update is None or (is_same and update.reason != Reason.UNSCHEDULABLE):
        return verdict
    message = _quote(update)
    findings = tuple(find_failures(observed, message)) if message or diagnose(observed) else ()
    if is_same and {each.code for each in findings} == {each.code for each in status.findings}:
        return verdict  # with other numbers of nodes
    return replace(verdict, findings=findings)


def _quote(ready: ConditionUpdate | Condition | None) -> str:
    """The message of ClusterReady, if it is evidence that no log or event contains."""
    return ready.message if ready and ready.reason == Reason.HEAD_UNREACHABLE else ""


def _reports_end(type: ConditionType, update: ConditionUpdate) -> bool:
    """Whether the condition has the message about the end of an attempt."""
    return (type == C.FAILED and update.status == "True") or (type == C.RUNNING and update.reason == Reason.RESTARTING)


def _add_best(verdict: Verdict, findings: Sequence[FailureFinding]) -> Verdict:
    """Add the first finding, if it is an error, to the messages about the end of the attempt. The code of a known
    failure is the reason of a job that has failed. Running keeps how the last attempt ended."""
    if not findings or findings[0].severity != "error":
        return verdict
    conditions = dict(verdict.conditions)
    for condition_type, update in verdict.conditions.items():
        if _reports_end(condition_type, update) or (condition_type == C.STALLED and update.status == "True"):
            conditions[condition_type] = replace(update, message=_add(update.message, findings[0]))
    failed = verdict.conditions.get(C.FAILED)
    if failed is not None and failed.reason in EXPLAINED and findings[0].code not in UNKNOWN:
        conditions |= {
            condition_type: replace(conditions[condition_type], reason=findings[0].code)
            for condition_type in (C.FAILED, C.STALLED)
        }
    return replace(verdict, message=_add(verdict.message, findings[0]), conditions=conditions)


def _add(message: str, finding: FailureFinding) -> str:
    period = "" if message.endswith((".", ")")) else "."
    if finding.code in UNKNOWN:
        if finding.evidence[-QUOTED:] in message:
            return message
        return truncate(f"{message}{period} {finding.evidence}")
    return f"{message}{period} {finding.code}: {finding.remedy}"
