"""Prometheus metrics of the operator."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rlt_core.kubernetes.api_paths import resource_of
from rlt_operator.job_metrics import JobMetrics

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
JOBS = JobMetrics()
REGISTRY.register(JOBS)


def count_api_request(method: str, path: str, status: int) -> None:
    """Count a response of the API server."""
    API_REQUESTS.labels(method=method, resource=resource_of(path), code=status).inc()


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
