"""The conditions of the status: updates of one reconciliation, merged into the conditions of the old status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal

from rlt_api.status.conditions import ConditionType, Reason, find_reason
from rlt_api.status.job_status import Condition, FailureFinding, RLTrainingJobStatus
from rlt_core.knowledge.entries import load_entries
from rlt_pod.report.metric_rules import DEFAULTS as METRIC_RULES


@dataclass(frozen=True)
class ConditionUpdate:
    """The new value of one condition."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    """A value of Reason, the code of a finding, or any string if a newer operator wrote it."""
    message: str = ""


ConditionUpdates = Mapping[ConditionType, ConditionUpdate]

METRIC_CODES = frozenset(rule[:1].upper() + rule[1:] for rule in METRIC_RULES)
"""The codes of findings about metrics: EntropyCollapse for the rule entropyCollapse."""
RECENT_S = 300.0
"""Age up to which the event of a condition is created again at the start of the operator."""

DEFAULTS: ConditionUpdates = {
    ConditionType.ACCEPTED: ConditionUpdate("True", Reason.VALID, "The spec is valid."),
    ConditionType.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASED, "No Ray cluster exists."),
    ConditionType.RUNNING: ConditionUpdate(
        "False", Reason.WAITING_FOR_CLUSTER, "The training starts when its Ray cluster is ready."
    ),
    ConditionType.RECONCILING: ConditionUpdate("True", Reason.PROGRESSING),
}
"""Conditions that a verdict does not list. Admitted, FabricVerified, PreflightPassed, Promoted and Published have no
default: not every job has a queue, preflight checks, gates or publications, and the fabric is decided later."""

RESUMED = ConditionUpdate("False", Reason.NOT_REQUESTED)
"""Suspended of a job that was suspended before."""

ABSENT_IF_FALSE = {ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.STALLED}
"""Conditions that exist only while they are True, as Complete and Failed of a batch/v1 Job."""

WITHOUT_EVENT = {ConditionType.ACCEPTED, ConditionType.FABRIC_VERIFIED, ConditionType.CLUSTER_READY}
"""Conditions on the way to Running. They have events for their problems only."""


@dataclass(frozen=True)
class Event:
    """A transition to report as a Kubernetes Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def find_condition(status: RLTrainingJobStatus, type: ConditionType) -> Condition | None:
    """The condition of that type, if the status has it."""
    return next((condition for condition in status.conditions if condition.type == type), None)


def is_true(status: RLTrainingJobStatus, type: ConditionType) -> bool:
    """Whether the condition is True in the status."""
    condition = find_condition(status, type)
    return condition is not None and condition.status == "True"


def get_reason(status: RLTrainingJobStatus) -> str:
    """The reason for the phase: from the condition that decides it, or from the first one that the job waits for."""
    decisive = (
        ConditionType.SUCCEEDED,
        ConditionType.FAILED,
        ConditionType.STALLED,
        ConditionType.SUSPENDED,
        ConditionType.RUNNING,
    )
    awaited = (
        ConditionType.ACCEPTED,
        ConditionType.ADMITTED,
        ConditionType.FABRIC_VERIFIED,
        ConditionType.CLUSTER_READY,
        ConditionType.PREFLIGHT_PASSED,
        ConditionType.RUNNING,
    )
    found = [
        condition
        for condition_type in decisive
        if (condition := find_condition(status, condition_type)) and is_true(status, condition_type)
    ]
    found += [
        condition
        for condition_type in awaited
        if (condition := find_condition(status, condition_type)) and not is_true(status, condition_type)
    ]
    return bound_reason(found[0].reason) if found else ""


def bound_reason(reason: str) -> str:
    """The reason, or Other for one of another operator version: label values are bounded."""
    return reason if reason in _list_reasons() else "Other"


@cache
def _list_reasons() -> frozenset[str]:
    """All reasons that this version writes."""
    return frozenset(Reason) | {entry.code for entry in load_entries()}


def keep_conditions(status: RLTrainingJobStatus, *types: ConditionType) -> dict[ConditionType, ConditionUpdate]:
    """Updates that leave these conditions of the status unchanged."""
    found = {
        condition_type: condition for condition_type in types if (condition := find_condition(status, condition_type))
    }
    return {
        condition_type: ConditionUpdate(each.status, each.reason, each.message)
        for condition_type, each in found.items()
    }


def merge_conditions(
    status: RLTrainingJobStatus, updates: ConditionUpdates, *, generation: int, now: datetime
) -> list[Condition]:
    """All conditions, in the order of ConditionType. lastTransitionTime changes only with the condition's status.

    A stalled job is not reconciling: kstatus would report it as in progress.
    """
    was_suspended = find_condition(status, ConditionType.SUSPENDED) is not None
    defaults = {**DEFAULTS, ConditionType.SUSPENDED: RESUMED} if was_suspended else DEFAULTS
    return merge_updates(status, {**defaults, **updates}, generation=generation, now=now, keep=False)


def merge_updates(
    status: RLTrainingJobStatus, updates: ConditionUpdates, *, generation: int, now: datetime, keep: bool = True
) -> list[Condition]:
    """The updated conditions and, with `keep`, the other conditions of the status, in the order of ConditionType."""
    every = {**(keep_conditions(status, *ConditionType) if keep else {}), **updates}
    if (stalled := every.get(ConditionType.STALLED)) and stalled.status == "True":
        every[ConditionType.RECONCILING] = ConditionUpdate("False", stalled.reason, stalled.message)
    merged = []
    for condition_type in (known for known in ConditionType if known in every):
        update = every[condition_type]
        if update.status == "False" and condition_type in ABSENT_IF_FALSE:
            continue
        old = find_condition(status, condition_type)
        unchanged = old is not None and old.status == update.status
        merged.append(
            Condition(
                type=condition_type,
                status=update.status,
                reason=update.reason,
                message=update.message,
                last_transition_time=old.last_transition_time if old and unchanged else format_time(now),
                observed_generation=generation,
            )
        )
    return merged


def build_events(old: RLTrainingJobStatus, new: Sequence[Condition]) -> tuple[Event, ...]:
    """One event for each condition that became True, has a new problem, or is no longer suspended."""
    events = []
    for condition in new:
        condition_type = ConditionType(condition.type)
        old_condition = find_condition(old, condition_type)
        default = DEFAULTS[condition_type].reason if condition_type in DEFAULTS else ""
        before = (old_condition.status, old_condition.reason) if old_condition else ("False", default)
        if before == (condition.status, condition.reason):
            continue
        if condition_type == ConditionType.SUSPENDED and condition.status == "False" and before[0] == "True":
            events.append(Event("Normal", "Resumed", "The job is resumed."))
        elif event := _build_event(condition):
            events.append(event)
    return tuple(events)


def build_rule_events(old: RLTrainingJobStatus, new: RLTrainingJobStatus) -> tuple[Event, ...]:
    """One event for each rule over the metrics that is broken and was not before."""
    before = {finding.code for finding in old.findings}
    found = (finding for finding in new.findings if finding.code in METRIC_CODES - before)
    return tuple(_build_rule_event(finding) for finding in found)


def _build_rule_event(finding: FailureFinding) -> Event:
    return Event("Warning", finding.code, f"{finding.message} {finding.evidence}.")


def list_current_events(status: RLTrainingJobStatus, now: datetime) -> tuple[Event, ...]:
    """The events that lead to the conditions of a status, as far as they are recent, or are problems that last.

    Recent is what changed in the last RECENT_S: an operator that ends between the status write and the event is
    replaced within that time.
    """
    events = [_build_rule_event(finding) for finding in status.findings if finding.code in METRIC_CODES]
    for condition in status.conditions:
        event = _build_event(condition) if condition.type in set(ConditionType) else None
        age = (now - datetime.fromisoformat(condition.last_transition_time)).total_seconds()
        if event and (age < RECENT_S or (condition.status != "True" and event.type == "Warning")):
            events.append(event)
    return tuple(events)


def _build_event(condition: Condition) -> Event | None:
    """The event for a condition that has changed to this; None if it has none."""
    failed = condition.type == ConditionType.FAILED and condition.status == "True"
    known = find_reason(condition.reason)
    problem = failed or (known is not None and known.problem)
    repeats = condition.type in (ConditionType.RECONCILING, ConditionType.STALLED)
    if repeats and condition.reason not in (Reason.REQUEST_FAILED, Reason.INTERNAL_ERROR):  # others have their event
        return None
    if condition.type == ConditionType.RECONCILING and condition.status == "False":  # Stalled has its event
        return None
    if condition.status == "False" and known is not None and known.final:  # Failed has its own event
        return None
    if not problem and condition.type in WITHOUT_EVENT:
        return None
    if condition.status == "True" or problem:
        reason = condition.reason if problem else condition.type
        return Event("Warning" if problem else "Normal", reason, condition.message)
    return None


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC, to the second, as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
