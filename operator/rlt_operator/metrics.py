"""Prometheus metrics of the operator. docs/observability.md is generated from these declarations."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rlt_core.kubernetes.api_paths import resource_of
from rlt_operator.job_metrics import JobMetrics

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "rlt_operator_reconcile_duration_seconds",
    "Duration of one reconciliation, by the job's phase after it.",
    ["phase"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
ERRORS = Counter(
    "rlt_operator_reconcile_errors",
    "Reconciliations that ended with an unexpected exception and are retried, by its class.",
    ["error"],
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "rlt_operator_queue_depth", "Jobs that wait for their reconciliation; 0 on standby.", registry=REGISTRY
)
QUEUE_SECONDS = Histogram(
    "rlt_operator_queue_wait_seconds",
    "Time from the first wake of a job to its reconciliation. It includes the minimum interval of a job.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
QUEUE_OLDEST = Gauge(
    "rlt_operator_queue_oldest_seconds",
    "Age of the oldest wake that no reconciliation has completed since; 0 on standby.",
    registry=REGISTRY,
)
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
ORPHANS = Gauge(
    "rlt_operator_orphaned_rayclusters",
    "RayClusters of deleted jobs that `kubectl delete --cascade=orphan` has kept.",
    registry=REGISTRY,
)
REVIEWS = Counter(
    "rlt_operator_reviews", "Admission reviews answered by the webhook.", ["operation", "outcome"], registry=REGISTRY
)
REVIEWS_REFUSED = Counter(
    "rlt_operator_reviews_refused",
    "Requests to the webhook that it did not review, by HTTP status: 503 if too many wait.",
    ["code"],
    registry=REGISTRY,
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
CACHE_OBJECTS = Gauge("rlt_operator_cache_objects", "Objects in the cache, by kind.", ["kind"], registry=REGISTRY)
CACHE_UPDATED = Gauge(
    "rlt_operator_cache_updated_timestamp_seconds",
    "Unix time of the latest list, change or bookmark, by kind. The API server sends a bookmark each minute.",
    ["kind"],
    registry=REGISTRY,
)
UNAVAILABLE_NAMESPACES = Gauge(
    "rlt_operator_unavailable_namespaces",
    "Selected namespaces in which the operator may not list or watch a kind, or that do not exist.",
    registry=REGISTRY,
)
POLLED_HEADS = Gauge("rlt_operator_polled_heads", "Ray heads that are polled.", registry=REGISTRY)
RAY_SECONDS = Histogram(
    "rlt_operator_ray_poll_duration_seconds",
    "Duration of one Ray head poll.",
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
SHARDS = Gauge(
    "rlt_operator_shards", "Shards of the operator, each of which has a leader; 1 without shards.", registry=REGISTRY
)
LEASE_TRANSITIONS = Gauge(
    "rlt_operator_lease_transitions", "Changes of the leader, as the Lease counts them.", registry=REGISTRY
)
CERTIFICATE_EXPIRY = Gauge(
    "rlt_operator_webhook_certificate_expiry_timestamp_seconds",
    "Unix time at which the served certificate of the webhook expires; 0 without a webhook.",
    registry=REGISTRY,
)
_LONG_S = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
START_SECONDS = Histogram(
    "rlt_operator_job_start_delay_seconds",
    "Time from the creation of a job to the first start of its training.",
    buckets=_LONG_S,
    registry=REGISTRY,
)
FIRST_STEP_SECONDS = Histogram(
    "rlt_operator_job_first_step_seconds",
    "Time from the creation of a job to its first completed step.",
    buckets=_LONG_S,
    registry=REGISTRY,
)
JOBS_ENDED = Counter(
    "rlt_operator_jobs_ended",
    "Jobs that have ended, by phase and reason of the condition Succeeded or Failed.",
    ["phase", "reason"],
    registry=REGISTRY,
)
ATTEMPTS_ENDED = Counter(
    "rlt_operator_attempts_ended",
    "Attempts that failed or were disrupted, by reason: Disrupted for a disruption.",
    ["reason"],
    registry=REGISTRY,
)
PREFLIGHT_SECONDS = Histogram(
    "rlt_operator_preflight_duration_seconds",
    "Duration of one preflight stage: network, services, data or training.",
    ["stage"],
    buckets=(1, 5, 15, 60, 300),
    registry=REGISTRY,
)
JOBS = JobMetrics()
REGISTRY.register(JOBS)

WEBHOOK_REGISTRY = CollectorRegistry()
"""The metrics of the webhook's process. The operator's metrics would be 0 there."""
for _metric in (REVIEWS, REVIEWS_REFUSED, API_REQUESTS, LOOP_DELAY_SECONDS, CERTIFICATE_EXPIRY):
    WEBHOOK_REGISTRY.register(_metric)


def count_api_request(method: str, path: str, status: int) -> None:
    """Count a response of the API server."""
    API_REQUESTS.labels(method=method, resource=resource_of(path), code=status).inc()


def render(registry: CollectorRegistry = REGISTRY) -> bytes:
    """All metrics of a registry in Prometheus' text format."""
    return generate_latest(registry)
