"""Reads a plan: the status that it writes, and the conditions in it."""

from __future__ import annotations

from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.conditions import find_condition
from rlt_operator.reconcile.plan import Plan


def status_of(plan: Plan) -> RLTrainingJobStatus:
    assert plan.status
    return plan.status


def condition_of(plan: Plan, type: ConditionType) -> tuple[str, str, str]:
    """Return status, reason and message."""
    found = find_condition(status_of(plan), type)
    assert found
    return found.status, found.reason, found.message


def reason_of(plan: Plan, type: ConditionType) -> str:
    return condition_of(plan, type)[1]
