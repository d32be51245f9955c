"""The gauges of a job follow its status: missing and NaN values, findings, the end of the job, its deletion.

The number of series is bounded: a test counts the series of 1,000 jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import observed as o
import pytest

from rlt_api.status.job_status import (
    FailureFinding,
    Phase,
    Progress,
    ProgressMetrics,
    RLTrainingJobStatus,
    Usage,
    UsageParts,
)
from rlt_operator import metrics
from rlt_operator.conditions import format_time
from rlt_operator.job_metrics import ENDED_S

JOB = o.job()
PROGRESS = Progress(
    step=92, total_steps=200, percent=46, display="46%", last_updated="2026-01-02T03:04:05Z", tokens_per_second=10
)
USAGE = Usage(
    accelerator_seconds=300,
    by=UsageParts(generate=200, idle=100),
    observed_time="2026-01-02T03:04:05Z",
    accelerators=8,
    state="running",
)


@pytest.fixture(autouse=True)
def _no_series() -> Iterator[None]:
    yield
    metrics.JOBS.forget(JOB.namespace, JOB.name)


def status(reward: float | None, **fields: object) -> RLTrainingJobStatus:
    progress = PROGRESS.model_copy(update={"metrics": ProgressMetrics(reward=reward)})
    return RLTrainingJobStatus(phase=Phase.RUNNING, progress=progress, gpus=8).model_copy(update=fields)


def series() -> dict[str, float]:
    """Name of each of the job's gauges -> value."""
    lines = [line for line in metrics.render().decode().splitlines() if 'name="sum"' in line]
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@pytest.mark.parametrize("reward", [None, float("nan")])
def test_a_missing_value_removes_the_last_good_one(reward: float | None) -> None:
    metrics.JOBS.record(JOB, status(0.9))
    assert series()["rlt_job_reward"] == 0.9
    metrics.JOBS.record(JOB, status(reward))
    assert "rlt_job_reward" not in series()
    assert series()["rlt_job_step"] == 92
    metrics.JOBS.record(JOB, status(0.5))
    assert series()["rlt_job_reward"] == 0.5


def test_a_job_that_has_ended_is_only_counted_after_two_scrapes() -> None:
    now = datetime.now(UTC)
    metrics.JOBS.record(JOB, status(0.9, completion_time=format_time(now)))
    assert series()["rlt_job_reward"] == 0.9, "the last value can be scraped"
    ended = format_time(now - timedelta(seconds=ENDED_S + 1))
    metrics.JOBS.record(JOB, status(0.9, completion_time=ended))
    assert series() == {}
    assert 'rlt_operator_jobs{phase="Running",reason=""} 1.0' in metrics.render().decode()


def test_a_finding_has_a_series_of_the_job_and_is_counted() -> None:
    finding = FailureFinding(code="GpuOutOfMemory", severity="error", message="", evidence="", remedy="", source="")
    metrics.JOBS.record(JOB, status(0.9, findings=[finding]))
    text = metrics.render().decode()
    assert 'rlt_operator_findings{code="GpuOutOfMemory"} 1.0' in text
    assert 'rlt_job_finding{code="GpuOutOfMemory",name="sum",namespace="demo"} 1.0' in text


def test_the_usage_has_a_series_for_each_part_and_follows_the_reports() -> None:
    metrics.JOBS.record(JOB, status(0.9))
    assert "rlt_job_accelerator_seconds{" not in metrics.render().decode()
    metrics.JOBS.record_report(JOB.namespace, JOB.name, status(0.9, usage=USAGE))
    text = metrics.render().decode()
    assert 'rlt_job_accelerator_seconds{name="sum",namespace="demo",phase="generate",role="colocated"} 200.0' in text
    assert text.count("rlt_job_accelerator_seconds{") == len(UsageParts.model_fields)


def test_the_series_of_1000_jobs_are_bounded() -> None:
    """Series of the operator have no label with the name of an object. A running job has at most 29, and one for each
    of its pods."""
    jobs = [replace(JOB, name=f"job-{number}") for number in range(1000)]
    before = len(metrics.render().decode().splitlines())
    for job in jobs:
        metrics.JOBS.record(job, status(0.9, usage=USAGE), [f"{job.name}-head", f"{job.name}-worker"])
    lines = metrics.render().decode().splitlines()
    for job in jobs:
        metrics.JOBS.forget(job.namespace, job.name)
    assert len(lines) - before <= 31 * len(jobs) + 10
    assert not [line for line in lines if line.startswith("rlt_operator_") and "job-" in line]


def test_a_deleted_job_has_no_series() -> None:
    metrics.JOBS.record(JOB, status(0.9))
    metrics.JOBS.forget(JOB.namespace, JOB.name)
    assert series() == {}
