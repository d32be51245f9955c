"""The series that Prometheus would have scraped from a run of `make demo` and from the operator.

recorded_demo.json has the metrics of the run: a list for each metric, with a value for each step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import observed
from prometheus_client.core import Metric

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import Phase, Progress, ProgressMetrics, RLTrainingJobStatus
from rlt_e2e.panels import Period
from rlt_e2e.prometheus import promtool
from rlt_operator import metrics
from rlt_trainer.telemetry.exposition import Snapshot, build_families

FILE = Path(__file__).with_suffix(".json")
NAMESPACE = "demo"
JOB = "arithmetic-grpo"
SAVE_FREQ = 25
UPDATED = "2026-01-01T00:00:00Z"


def read_steps() -> list[dict[str, float]]:
    """Read the metrics of each step. A step lacks the metrics that are null."""
    columns: Mapping[str, list[float | None]] = json.loads(FILE.read_text())
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*columns.values(), strict=True)
    ]


def build_driver_families(steps: list[dict[str, float]], last: int, started: float) -> Iterator[Metric]:
    """What the driver exports after the step `last` (from 1)."""
    recorded = dict(steps[last - 1])
    recorded.pop("step")
    ended = [started + seconds for seconds in _sum_durations(steps)]
    saved = last // SAVE_FREQ * SAVE_FREQ
    report = ProgressReport(
        stage="training",
        step=last,
        total_steps=len(steps),
        tokens_per_second=recorded["perf/total_num_tokens"] / recorded["timing_s/step"],
        latest_checkpoint_step=saved or None,
        updated=UPDATED,
    )
    snapshot = Snapshot(
        JOB,
        NAMESPACE,
        ended[last - 1],
        report,
        recorded,
        tokens=sum(step["perf/total_num_tokens"] for step in steps[:last]),
        steps=last,
        checkpoint_timestamp=ended[saved - 1] if saved else started,
        engine_requests={"running": 1, "waiting": 0},
    )
    return build_families(snapshot)


def build_operator_families(last: int, total: int) -> Iterator[Metric]:
    """What the operator exports for the running job."""
    progress = Progress(
        step=last,
        total_steps=total,
        percent=100 * last // total,
        display=f"{100 * last // total}%",
        last_updated=UPDATED,
        metrics=ProgressMetrics(reward=0.5),
    )
    job = observed.job(name=JOB)
    metrics.RECONCILE_SECONDS.labels(phase="Running").observe(0.01)
    metrics.API_REQUESTS.labels(method="GET", resource="pods", code=200).inc()
    metrics.WATCH_EVENTS.labels(kind="pods").inc()
    metrics.EVENTS.labels(type="Normal").inc()
    metrics.CACHE_OBJECTS.labels(kind="pods").set(2)
    metrics.CACHE_UPDATED.labels(kind="pods").set_to_current_time()
    metrics.JOBS_ENDED.labels(phase="Succeeded", reason="Finished").inc()
    metrics.JOBS.record(job, RLTrainingJobStatus(phase=Phase.RUNNING, progress=progress, gpus=0), ["sum-head"])
    try:
        yield from metrics.REGISTRY.collect()
    finally:
        metrics.JOBS.forget(job.namespace, job.name)


def list_series(families: Iterator[Metric]) -> Iterator[tuple[str, float]]:
    """Yield each series as PromQL selects it, and its value."""
    for family in families:
        for sample in family.samples:
            labels = ",".join(f"{label}={json.dumps(value)}" for label, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}", float(sample.value)


def write_blocks(folder: Path, *, end: float) -> Period:
    """Write the run, which ended at `end`, as Prometheus stores it. Return the time of the run."""
    steps = read_steps()
    durations = _sum_durations(steps)
    started = end - durations[-1]
    lines: dict[str, list[str]] = {}
    for last, seconds in enumerate(durations, start=1):
        families = (build_driver_families(steps, last, started), build_operator_families(last, len(steps)))
        for each in families:
            for series, value in list_series(each):
                name = series.partition("{")[0]
                lines.setdefault(name, []).append(f"{series} {value} {started + seconds:.3f}")
    text = [line for samples in lines.values() for line in samples]
    file = folder / "recorded.txt"
    file.write_text("\n".join([*text, "# EOF\n"]))
    promtool("tsdb", "create-blocks-from", "openmetrics", str(file), str(folder / "data"))
    variables = {"namespace": ".*", "job": ".*", "__rate_interval": "20s", "__range": "1h"}
    return Period(started + durations[0], end, variables)


def _sum_durations(steps: list[dict[str, Any]]) -> list[float]:
    """The seconds from the start to the end of each step."""
    total = 0.0
    sums = []
    for step in steps:
        total += step["timing_s/step"]
        sums.append(total)
    return sums
