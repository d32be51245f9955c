"""The operator's Prometheus metrics: its own work, and for each job the numbers of its status."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rlt_api.status import Phase
from rlt_core.job import Job
from rlt_operator.reconcile.plan import Plan

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "rlt_operator_reconcile_duration_seconds",
    "Duration of one look at a job: observe, plan, apply.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
ERRORS = Counter("rlt_operator_reconcile_errors", "Looks that failed and are repeated.", registry=REGISTRY)
STATUS_WRITES = Counter("rlt_operator_status_writes", "Status writes.", registry=REGISTRY)
EVENTS = Counter("rlt_operator_events", "Events told, by type.", ["type"], registry=REGISTRY)
REVIEWS = Counter("rlt_operator_reviews", "Answers of the webhook.", ["operation", "outcome"], registry=REGISTRY)
JOBS = Gauge("rlt_operator_jobs", "Jobs by phase.", ["phase"], registry=REGISTRY)

_JOB = ["namespace", "name"]
JOB_INFO = Gauge("rlt_job_info", "1 for each job.", [*_JOB, "uid", "framework"], registry=REGISTRY)
JOB_PHASE = Gauge("rlt_job_phase", "1 for the phase that the job is in.", [*_JOB, "phase"], registry=REGISTRY)
JOB_GAUGES = {
    "step": Gauge("rlt_job_step", "Steps completed.", _JOB, registry=REGISTRY),
    "total_steps": Gauge("rlt_job_total_steps", "Steps in all.", _JOB, registry=REGISTRY),
    "reward": Gauge("rlt_job_reward", "Mean reward of the latest step.", _JOB, registry=REGISTRY),
    "kl": Gauge("rlt_job_kl", "Mean KL divergence to the reference model.", _JOB, registry=REGISTRY),
    "entropy": Gauge("rlt_job_entropy", "Mean entropy of the policy in nats.", _JOB, registry=REGISTRY),
    "tokens_per_second": Gauge(
        "rlt_job_tokens_per_second", "Tokens of the latest step per second.", _JOB, registry=REGISTRY
    ),
    "gpus": Gauge("rlt_job_gpus", "Accelerators that the job asks for.", _JOB, registry=REGISTRY),
    "restarts": Gauge("rlt_job_restarts", "Attempts that another one followed.", _JOB, registry=REGISTRY),
    "ready_workers": Gauge("rlt_job_ready_workers", "Worker pods that are ready.", _JOB, registry=REGISTRY),
}

_phases: dict[tuple[str, str], Phase] = {}


def record(job: Job, plan: Plan) -> None:
    """Take the numbers of a look over into the metrics."""
    if plan.status is not None:
        STATUS_WRITES.inc()
    for event in plan.events if plan.status is not None else ():
        EVENTS.labels(type=event.type).inc()
    key, status = (job.namespace, job.name), plan.status or job.status
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
    _count()


def forget(namespace: str, name: str) -> None:
    """Take the metrics of a job away that does not exist any more."""
    _phases.pop((namespace, name), None)
    for gauge in (JOB_INFO, JOB_PHASE, *JOB_GAUGES.values()):
        gauge.remove_by_labels({"namespace": namespace, "name": name})
    _count()


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


def _count() -> None:
    for phase in Phase:
        JOBS.labels(phase=phase.value).set(sum(other == phase for other in _phases.values()))
