"""Prometheus metrics of the operator, and of each job from its status.

A job has a gauge only while its status has the value: a missing or NaN value removes the series, so that a graph has a
gap and no stale value. The gauges of a job that has ended remain for ENDED_S, longer than a scrape interval. Then only
rlt_job_info and rlt_job_phase remain, until the job is deleted.
"""

from __future__ import annotations

import math
from collections import Counter as Counts
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rlt_api.status import Phase, RLTrainingJobStatus
from rlt_core.job import Job
from rlt_core.kubernetes.api_paths import resource_of

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "rlt_operator_reconcile_duration_seconds",
    "Duration of one reconciliation of a job.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
ERRORS = Counter("rlt_operator_reconcile_errors", "Reconciliations that failed and are retried.", registry=REGISTRY)
STATUS_WRITES = Counter("rlt_operator_status_writes", "Status writes.", registry=REGISTRY)
EVENTS = Counter("rlt_operator_events", "Kubernetes Events written, by type.", ["type"], registry=REGISTRY)
EVENTS_DROPPED = Counter(
    "rlt_operator_events_dropped", "Kubernetes Events not written: too many of one job, or an error.", registry=REGISTRY
)
REQUEST_FAILURES = Counter(
    "rlt_operator_request_failures",
    "Reconciliations whose request to the API server or Ray failed, by reason of the condition.",
    ["reason"],
    registry=REGISTRY,
)
UNREPORTED_FAILURES = Counter(
    "rlt_operator_unreported_failures",
    "Failures that could not be written to the status of the job.",
    registry=REGISTRY,
)
CRD_MISSING_FIELDS = Gauge(
    "rlt_operator_crd_missing_fields",
    "Fields of this version that the installed CRD lacks.",
    ["crd"],
    registry=REGISTRY,
)
REVIEWS = Counter(
    "rlt_operator_reviews", "Admission reviews answered by the webhook.", ["operation", "outcome"], registry=REGISTRY
)
API_REQUESTS = Counter(
    "rlt_operator_api_requests",
    "Requests to the API server, by method, resource and status.",
    ["method", "resource", "code"],
    registry=REGISTRY,
)
WATCH_EVENTS = Counter(
    "rlt_operator_watch_events", "Changes received by watches, by kind of object.", ["kind"], registry=REGISTRY
)
RELISTS = Counter(
    "rlt_operator_relists", "Watches that expired, so that the objects were listed again.", ["kind"], registry=REGISTRY
)
POLLED_HEADS = Gauge("rlt_operator_polled_heads", "Ray heads that are polled.", registry=REGISTRY)
RAY_SECONDS = Histogram(
    "rlt_operator_ray_poll_duration_seconds",
    "Duration of one poll of a Ray head.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
RAY_ERRORS = Counter("rlt_operator_ray_poll_errors", "Polls that a Ray head did not answer.", registry=REGISTRY)
LOOP_DELAY_SECONDS = Histogram(
    "rlt_operator_event_loop_delay_seconds",
    "How much later than requested the event loop resumes a task that sleeps.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
    registry=REGISTRY,
)
LEADER = Gauge("rlt_operator_leader", "1 if this replica reconciles jobs, 0 if it is on standby.", registry=REGISTRY)
LEASE_TRANSITIONS = Gauge(
    "rlt_operator_lease_transitions", "Changes of the leader, as the Lease counts them.", registry=REGISTRY
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
    "disruptions": Gauge(
        "rlt_job_disruptions", "Disrupted attempts that were followed by another attempt.", _JOB, registry=REGISTRY
    ),
    "ready_workers": Gauge("rlt_job_ready_workers", "Worker pods that are ready.", _JOB, registry=REGISTRY),
}

ENDED_S = 600.0
"""Time after the end of a job in which its gauges remain."""

_phases: dict[tuple[str, str], Phase] = {}
_ended: dict[tuple[str, str], datetime] = {}
"""When a job ended, while it has gauges."""


def count_api_request(method: str, path: str, status: int) -> None:
    """Count a response of the API server."""
    API_REQUESTS.labels(method=method, resource=resource_of(path), code=status).inc()


def record_job(job: Job, status: RLTrainingJobStatus) -> None:
    """Update the metrics of a job."""
    key = (job.namespace, job.name)
    JOB_INFO.labels(*key, job.uid, job.spec.framework.type if job.spec else "unknown").set(1)
    if status.phase:
        _phases[key] = status.phase
        for phase in Phase:
            JOB_PHASE.labels(*key, phase.value).set(phase == status.phase)
    if status.completion_time:
        _ended[key] = datetime.fromisoformat(status.completion_time)
    progress, cluster = status.progress, status.ray_cluster
    numbers = {
        "gpus": status.gpus,
        "ready_workers": cluster.ready_workers if cluster else 0,
        "restarts": status.restarts or 0,
        "disruptions": status.disruptions or 0,
        "step": progress.step if progress else None,
        "total_steps": progress.total_steps or None if progress else None,
        "tokens_per_second": progress.tokens_per_second if progress else None,
        "reward": progress.metrics.reward if progress else None,
        "kl": progress.metrics.kl if progress else None,
        "entropy": progress.metrics.entropy if progress else None,
    }
    for name, number in numbers.items():
        if number is None or math.isnan(number):
            _remove(*key, JOB_GAUGES[name])
        else:
            JOB_GAUGES[name].labels(*key).set(number)


def forget_job(namespace: str, name: str) -> None:
    """Remove the metrics of a job that no longer exists."""
    _phases.pop((namespace, name), None)
    _ended.pop((namespace, name), None)
    _remove(namespace, name, JOB_INFO, JOB_PHASE, *JOB_GAUGES.values())


def _remove(namespace: str, name: str, *gauges: Gauge) -> None:
    for gauge in gauges:
        gauge.remove_by_labels({"namespace": namespace, "name": name})


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    now = datetime.now(UTC)
    for key in [key for key, ended in _ended.items() if (now - ended).total_seconds() > ENDED_S]:
        del _ended[key]
        _remove(*key, *JOB_GAUGES.values())
    _count_phases()
    return generate_latest(REGISTRY)


def _count_phases() -> None:
    counts = Counts(_phases.values())
    for phase in Phase:
        JOBS.labels(phase=phase.value).set(counts[phase])
