"""Prometheus metrics of the operator, and of each job from its status."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rlt_api.status import Phase, RLTrainingJobStatus
from rlt_core.job import Job
from rlt_operator.conditions import Event

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "rlt_operator_reconcile_duration_seconds",
    "Duration of one reconciliation of a job.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
ERRORS = Counter("rlt_operator_reconcile_errors", "Reconciliations that failed and are retried.", registry=REGISTRY)
STATUS_WRITES = Counter("rlt_operator_status_writes", "Status writes.", registry=REGISTRY)
EVENTS = Counter("rlt_operator_events", "Kubernetes Events created, by type.", ["type"], registry=REGISTRY)
REVIEWS = Counter(
    "rlt_operator_reviews", "Admission reviews answered by the webhook.", ["operation", "outcome"], registry=REGISTRY
)
JOBS = Gauge("rlt_operator_jobs", "Jobs by phase.", ["phase"], registry=REGISTRY)

_JOB = ["namespace", "name"]
JOB_INFO = Gauge("rlt_job_info", "1 for each job.", [*_JOB, "uid", "framework"], registry=REGISTRY)
JOB_PHASE = Gauge("rlt_job_phase", "1 for the phase that the job is in.", [*_JOB, "phase"], registry=REGISTRY)
JOB_GAUGES = {
    "step": Gauge("rlt_job_step", "Steps completed.", _JOB, registry=REGISTRY),
    "total_steps": Gauge("rlt_job_total_steps", "Steps in total.", _JOB, registry=REGISTRY),
    "reward": Gauge("rlt_job_reward", "Mean reward of the latest step.", _JOB, registry=REGISTRY),
    "kl": Gauge("rlt_job_kl", "Mean KL divergence to the reference model.", _JOB, registry=REGISTRY),
    "entropy": Gauge("rlt_job_entropy", "Mean entropy of the policy in nats.", _JOB, registry=REGISTRY),
    "tokens_per_second": Gauge(
        "rlt_job_tokens_per_second", "Tokens of the latest step per second.", _JOB, registry=REGISTRY
    ),
    "gpus": Gauge("rlt_job_gpus", "Accelerators that the job requests.", _JOB, registry=REGISTRY),
    "restarts": Gauge(
        "rlt_job_restarts", "Failed attempts that were followed by another attempt.", _JOB, registry=REGISTRY
    ),
    "ready_workers": Gauge("rlt_job_ready_workers", "Worker pods that are ready.", _JOB, registry=REGISTRY),
}

_phases: dict[tuple[str, str], Phase] = {}


def count_status_write(events: Sequence[Event]) -> None:
    """Count a status write and its events."""
    STATUS_WRITES.inc()
    for event in events:
        EVENTS.labels(type=event.type).inc()


def record_job(job: Job, status: RLTrainingJobStatus) -> None:
    """Update the metrics of a job."""
    key = (job.namespace, job.name)
    JOB_INFO.labels(*key, job.uid, job.spec.framework.type if job.spec else "unknown").set(1)
    if status.phase:
        _phases[key] = status.phase
        for phase in Phase:
            JOB_PHASE.labels(*key, phase.value).set(phase == status.phase)
    progress, cluster = status.progress, status.ray_cluster
    numbers = {
        "gpus": status.gpus,
        "ready_workers": cluster.ready_workers if cluster else 0,
        "restarts": status.restarts or 0,
        "step": progress.step if progress else None,
        "total_steps": progress.total_steps or None if progress else None,
        "tokens_per_second": progress.tokens_per_second if progress else None,
        "reward": progress.metrics.reward if progress else None,
        "kl": progress.metrics.kl if progress else None,
        "entropy": progress.metrics.entropy if progress else None,
    }
    for name, number in numbers.items():
        if number is not None:
            JOB_GAUGES[name].labels(*key).set(number)
    _count_phases()


def forget_job(namespace: str, name: str) -> None:
    """Remove the metrics of a job that no longer exists."""
    _phases.pop((namespace, name), None)
    for gauge in (JOB_INFO, JOB_PHASE, *JOB_GAUGES.values()):
        gauge.remove_by_labels({"namespace": namespace, "name": name})
    _count_phases()


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


def _count_phases() -> None:
    for phase in Phase:
        JOBS.labels(phase=phase.value).set(sum(other == phase for other in _phases.values()))
