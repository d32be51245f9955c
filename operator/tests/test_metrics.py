"""The gauges of a job follow its status: missing and NaN values, the end of the job, its deletion."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import observed as o
import pytest

from rlt_api.status import Phase, Progress, ProgressMetrics, RLTrainingJobStatus
from rlt_operator import metrics
from rlt_operator.conditions import format_time
from rlt_operator.job_metrics import ENDED_S

JOB = o.job()
PROGRESS = Progress(
    step=92, total_steps=200, percent=46, display="46%", last_updated="2026-01-02T03:04:05Z", tokens_per_second=10
)


@pytest.fixture(autouse=True)
def _no_series() -> Iterator[None]:
    yield
    metrics.JOBS.forget(JOB.namespace, JOB.name)


def status(reward: float | None, **fields: object) -> RLTrainingJobStatus:
    progress = PROGRESS.model_copy(update={"metrics": ProgressMetrics(reward=reward)})
    return RLTrainingJobStatus(phase=Phase.RUNNING, progress=progress, gpus=8).model_copy(update=fields)


def series() -> dict[str, float]:
    """Name of each gauge of the job -> value."""
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


def test_a_job_that_has_ended_keeps_its_phase_only() -> None:
    now = datetime.now(UTC)
    metrics.JOBS.record(JOB, status(0.9, completion_time=format_time(now)))
    assert series()["rlt_job_reward"] == 0.9, "the last value can be scraped"
    ended = format_time(now - timedelta(seconds=ENDED_S + 1))
    metrics.JOBS.record(JOB, status(0.9, completion_time=ended))
    assert set(series()) == {"rlt_job_info", "rlt_job_phase"}


def test_a_deleted_job_has_no_series() -> None:
    metrics.JOBS.record(JOB, status(0.9))
    metrics.JOBS.forget(JOB.namespace, JOB.name)
    assert series() == {}
