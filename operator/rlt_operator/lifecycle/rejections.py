"""The report of a rejected request, whichever step it belongs to."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.status.conditions import ConditionType, Reason
from rlt_operator.conditions import ConditionUpdate, ConditionUpdates, format_time
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.observation import Observed, Rejection
from rlt_operator.verdict import Verdict

C = ConditionType


def set_rejection(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Add the rejection to Stalled or Reconciling, and to the message unless the job has ended."""
    rejection = observed.rejection
    if rejection is None:
        return verdict
    quoted = truncate(rejection.message)
    reason = next((each.reason for each in verdict.conditions.values() if quoted in each.message), rejection.reason)
    message = add_retry(verdict.message if quoted in verdict.message else quoted, rejection)
    stalled = rejection.stalled or verdict.is_true(C.FAILED)
    if not verdict.is_final:
        verdict = replace(verdict, message=message)
    return replace(verdict, conditions={**verdict.conditions, **build_rejected(reason, message, stalled=stalled)})


def build_rejected(reason: str, message: str, *, stalled: bool) -> ConditionUpdates:
    """Stalled if a person has to act, else Reconciling."""
    update = ConditionUpdate("True", reason, message)
    if stalled:
        return {C.STALLED: update}
    return {C.RECONCILING: update, C.STALLED: ConditionUpdate("False", Reason.PROGRESSING)}


def add_retry(message: str, rejection: Rejection) -> str:
    """The message, and when the operator retries."""
    if rejection.retry_at is None:
        return message
    end = "" if message.endswith((".", "!", "?", "…")) else "."
    return f"{message}{end} The operator retries at {format_time(rejection.retry_at)}."
