"""Conditions of the status: claims of this look, merged with what earlier looks said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Condition, RLTrainingJobStatus


@dataclass(frozen=True)
class ConditionUpdate:
    """What this look says of one condition."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    """One of Reason; any word, if a newer operator wrote it."""
    message: str = ""


ConditionUpdates = Mapping[ConditionType, ConditionUpdate]

DEFAULTS: ConditionUpdates = {
    ConditionType.ACCEPTED: ConditionUpdate("True", Reason.VALID, "The spec is valid."),
    ConditionType.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASED, "There is no Ray cluster."),
    ConditionType.RUNNING: ConditionUpdate(
        "False", Reason.WAITING_FOR_CLUSTER, "The training waits for its Ray cluster."
    ),
    ConditionType.SUCCEEDED: ConditionUpdate("False", Reason.NOT_FINISHED),
    ConditionType.FAILED: ConditionUpdate("False", Reason.NOT_FINISHED),
    ConditionType.SUSPENDED: ConditionUpdate("False", Reason.NOT_REQUESTED),
    ConditionType.RECONCILING: ConditionUpdate("True", Reason.PROGRESSING),
    ConditionType.STALLED: ConditionUpdate("False", Reason.PROGRESSING),
}
"""What holds of a condition that a look does not speak of. Of Admitted, FabricVerified and PreflightPassed nothing: not
every job is in a queue or has its nodes checked, and they are looked at late."""

FABRIC_PROBLEMS = {
    Reason.NODES_DISAGREE,
    Reason.UNSUPPORTED_ACCELERATOR,
    Reason.TWO_VENDORS,
    Reason.RESOURCE_NOT_FOUND,
    Reason.TOO_MANY_ACCELERATORS,
    Reason.NO_CANDIDATE,
    Reason.PROFILE_DOES_NOT_FIT,
    Reason.UNKNOWN_PROFILE,
    Reason.ATTACH_NOT_POSSIBLE,
    Reason.RDMA_NOT_FOUND,
    Reason.RDMA_NOT_ATTACHED,
    Reason.RDMA_DISABLED_BY_USER,
    Reason.MIXED_FABRIC,
    Reason.CONTRADICTORY_LABELS,
    Reason.HCA_MATCHES_NOTHING,
    Reason.DEVICE_VISIBILITY,
}
"""Reasons of FabricVerified that are bad news: every refusal of `rlt_core.fabric`."""

PROBLEMS = {
    Reason.INVALID_SPEC,
    Reason.RUNTIME_NOT_FOUND,
    *FABRIC_PROBLEMS,
    Reason.KUBERAY_MISSING,
    Reason.KUBERAY_TOO_OLD,
    Reason.KUBERAY_SILENT,
    Reason.NAME_TAKEN,
    Reason.CLUSTER_REFUSED,
    Reason.POD_CREATION_FAILED,
    Reason.UNSCHEDULABLE,
    Reason.IMAGE_PULL_FAILED,
    Reason.CONTAINER_CONFIG_FAILED,
    Reason.CONTAINER_CRASHED,
    Reason.VOLUME_FAILED,
    Reason.PREFLIGHT_FAILED,
    Reason.SUBMISSION_REFUSED,
    Reason.RAY_UNREACHABLE,
    Reason.RESTARTING,
    Reason.PROGRAM_FAILED,
    Reason.HEAD_LOST,
    Reason.STOPPED,
    Reason.DEADLINE_EXCEEDED,
    Reason.PENDING_DEADLINE_EXCEEDED,
}
"""Reasons that are bad news: their events are warnings."""


FINAL = {
    Reason.INVALID_SPEC,
    Reason.PREFLIGHT_FAILED,
    Reason.PROGRAM_FAILED,
    Reason.HEAD_LOST,
    Reason.STOPPED,
    Reason.DEADLINE_EXCEEDED,
    Reason.PENDING_DEADLINE_EXCEEDED,
}
"""Reasons of Failed, which other conditions repeat."""


@dataclass(frozen=True)
class Event:
    """A transition that people should hear of: an Event object is made of it."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def condition(status: RLTrainingJobStatus, type: ConditionType) -> Condition | None:
    """The condition of that type, if the status has it."""
    return next((condition for condition in status.conditions if condition.type == type), None)


def is_true(status: RLTrainingJobStatus, type: ConditionType) -> bool:
    """Whether the status says that the condition holds."""
    found = condition(status, type)
    return found is not None and found.status == "True"


def merge(status: RLTrainingJobStatus, claims: ConditionUpdates, *, generation: int, now: datetime) -> list[Condition]:
    """All conditions, in the order of ConditionType. lastTransitionTime moves only with the condition's status.

    A job that is stalled is not reconciling: kstatus would take it for one on its way.
    """
    every = {**DEFAULTS, **claims}
    if (stalled := every[ConditionType.STALLED]).status == "True":
        every[ConditionType.RECONCILING] = ConditionUpdate("False", stalled.reason, stalled.message)
    merged = []
    for type in (type for type in ConditionType if type in every):
        claim = every[type]
        old = condition(status, type)
        unchanged = old is not None and old.status == claim.status
        merged.append(
            Condition(
                type=type,
                status=claim.status,
                reason=claim.reason,
                message=claim.message,
                last_transition_time=old.last_transition_time if old and unchanged else timestamp(now),
                observed_generation=generation,
            )
        )
    return merged


def events(old: RLTrainingJobStatus, new: Sequence[Condition]) -> tuple[Event, ...]:
    """One event for each condition that became true, or that has a new problem or remedy to tell."""
    told = []
    for new_condition in new:
        type = ConditionType(new_condition.type)
        old_condition = condition(old, type)
        default = DEFAULTS[type].reason if type in DEFAULTS else ""
        before = (old_condition.status, old_condition.reason) if old_condition else ("False", default)
        if (
            before == (new_condition.status, new_condition.reason)
            or type in (ConditionType.RECONCILING, ConditionType.STALLED)  # they repeat the others
            or (new_condition.status == "False" and new_condition.reason in FINAL)  # Failed says it
        ):
            continue
        bad = new_condition.reason in PROBLEMS
        resumed = type == ConditionType.SUSPENDED and before[0] == "True"
        if new_condition.status == "True" or bad or resumed:
            reason = "Resumed" if resumed else new_condition.reason if bad else new_condition.type
            message = "The job goes on." if resumed else new_condition.message
            told.append(Event("Warning" if bad else "Normal", reason, message))
    return tuple(told)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second, as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
