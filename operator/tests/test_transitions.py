"""What changes once in a job is counted once: start, first step, ends of attempts and of the job, preflight stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, Condition, Phase, PreflightCheck, Progress, RLTrainingJobStatus
from rlt_operator import metrics
from rlt_operator.conditions import get_reason
from rlt_operator.transitions import observe_transition

NOW = datetime(2026, 1, 2, 3, 10, tzinfo=UTC)
CREATED = "2026-01-02T03:00:00Z"
STARTED = RLTrainingJobStatus(phase=Phase.RUNNING, start_time="2026-01-02T03:05:00Z")


def count(old: RLTrainingJobStatus, new: RLTrainingJobStatus) -> dict[str, float]:
    """Sample of the registry -> change by this transition, without the buckets of histograms."""
    before = read_samples()
    observe_transition(replace(o.job(), created=CREATED, status=old), new, NOW)
    changes = {name: value - before.get(name, 0.0) for name, value in read_samples().items()}
    return {name: change for name, change in changes.items() if change}


def read_samples() -> dict[str, float]:
    samples = [sample for family in metrics.REGISTRY.collect() for sample in family.samples]
    kept = [sample for sample in samples if sample.name.endswith(("_total", "_sum"))]
    return {sample.name + "".join(sample.labels.values()): sample.value for sample in kept}


def progress(step: int) -> Progress:
    return Progress(step=step, total_steps=9, percent=0, display="", last_updated=CREATED)


def attempt(number: int, reason: str) -> Attempt:
    return Attempt(number=number, ray_cluster_uid=str(number), completion_time=CREATED, reason=reason, message="")


def check(name: str, stage: str, seconds: float) -> PreflightCheck:
    return PreflightCheck(name=name, stage=stage, result="passed", seconds=seconds, message="")


@pytest.mark.parametrize(
    ("update", "changes"),
    [
        ({"start_time": "2026-01-02T03:05:00Z"}, {"rlt_operator_job_start_delay_seconds_sum": 300.0}),
        ({"progress": progress(0)}, {}),
        ({"progress": progress(2)}, {"rlt_operator_job_first_step_seconds_sum": 600.0}),
        ({"attempts": [attempt(1, "Disrupted")]}, {"rlt_operator_attempts_ended_totalDisrupted": 1.0}),
        ({"attempts": [attempt(1, "Unheard")]}, {"rlt_operator_attempts_ended_totalOther": 1.0}),
        (
            {"preflight": [check("dns", "network", 2.0), check("mtu", "network", 2.0), check("space", "data", 3.0)]},
            {"rlt_operator_preflight_duration_seconds_sumnetwork": 2.0}
            | {"rlt_operator_preflight_duration_seconds_sumdata": 3.0},
        ),
    ],
)
def test_a_change_is_counted_once(update: Mapping[str, Any], changes: Mapping[str, float]) -> None:
    old = RLTrainingJobStatus(phase=Phase.PROVISIONING)
    new = old.model_copy(update=update)
    assert count(old, new) == changes
    assert count(new, new) == {}


@pytest.mark.parametrize(
    ("reason", "label"),
    [(Reason.NO_PROGRESS, "NoProgress"), ("GpuOutOfMemory", "GpuOutOfMemory"), ("FromANewerOperator", "Other")],
)
def test_the_end_of_a_job_is_counted_with_its_reason(reason: str, label: str) -> None:
    failed = condition(ConditionType.FAILED, "True", reason)
    ended = STARTED.model_copy(update={"phase": Phase.FAILED, "completion_time": CREATED, "conditions": [failed]})
    assert count(STARTED, ended) == {f"rlt_operator_jobs_ended_totalFailed{label}": 1.0}
    assert count(ended, ended) == {}


def test_a_waiting_job_has_the_reason_of_the_first_condition_that_is_not_met() -> None:
    accepted = condition(ConditionType.ACCEPTED, "True", Reason.VALID)
    ready = condition(ConditionType.CLUSTER_READY, "False", Reason.UNSCHEDULABLE)
    running = condition(ConditionType.RUNNING, "False", Reason.WAITING_FOR_CLUSTER)
    status = RLTrainingJobStatus(conditions=[accepted, ready, running])
    assert get_reason(status) == "Unschedulable"
    assert get_reason(RLTrainingJobStatus()) == ""


def condition(type: ConditionType, status: str, reason: str) -> Condition:
    return Condition.model_validate(
        {"type": type, "status": status, "reason": reason, "message": ""}
        | {"lastTransitionTime": CREATED, "observedGeneration": 1}
    )
