"""The dashboard Operator."""

from __future__ import annotations

from monitoring.dashboard_queries import query_quantiles, query_rate
from monitoring.grafana import Dashboard, Panel, Query, Row

OPERATOR = Dashboard(
    uid="rlt-operator",
    title="rlt / Operator",
    rows=(
        Row(
            "Reconciliation",
            (
                Panel(
                    title="Reconciliations",
                    description="Reconciliations per second, by phase of the job.",
                    queries=(query_rate("rlt_operator_reconcile_duration_seconds_count", "phase"),),
                    unit="ops",
                    minimum=0,
                ),
                Panel(
                    title="Duration",
                    description="Duration of a reconciliation.",
                    queries=query_quantiles("rlt_operator_reconcile_duration_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Errors",
                    description="Exceptions, and requests that failed, by reason.",
                    queries=(
                        query_rate("rlt_operator_reconcile_errors_total", "error"),
                        query_rate("rlt_operator_request_failures_total", "reason"),
                    ),
                    unit="ops",
                    minimum=0,
                    requires="errors",
                ),
                Panel(
                    title="Queue",
                    description="Jobs that wait for their reconciliation.",
                    queries=(Query("rlt_operator_queue_depth", "{{pod}}"),),
                    minimum=0,
                ),
                Panel(
                    title="Wait in the queue",
                    description="Time from a wake to the reconciliation.",
                    queries=query_quantiles("rlt_operator_queue_wait_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Oldest wake",
                    description="Age of the oldest wake that no reconciliation has completed since.",
                    queries=(Query("rlt_operator_queue_oldest_seconds", "{{pod}}"),),
                    unit="s",
                    minimum=0,
                ),
            ),
        ),
        Row(
            "API server and Ray",
            (
                Panel(
                    title="API requests",
                    description="Requests to the API server, by method and status.",
                    queries=(query_rate("rlt_operator_api_requests_total", "method", "code"),),
                    unit="reqps",
                    minimum=0,
                ),
                Panel(
                    title="Polls of Ray heads",
                    description="Duration of a poll of a Ray head.",
                    queries=query_quantiles("rlt_operator_ray_poll_duration_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Heads",
                    description="Ray heads that are polled, and polls per second that a head did not answer.",
                    queries=(
                        Query("rlt_operator_polled_heads", "{{pod}} heads"),
                        Query("rate(rlt_operator_ray_poll_errors_total[$__rate_interval])", "{{pod}} errors"),
                    ),
                    minimum=0,
                ),
                Panel(
                    title="Cache",
                    description="Objects in the cache of the leader, by kind.",
                    queries=(Query("max by (kind) (rlt_operator_cache_objects)", "{{kind}}"),),
                    minimum=0,
                ),
                Panel(
                    title="Age of the cache",
                    description="Time since the latest list, change or bookmark. Bookmarks come about once a minute.",
                    queries=(
                        Query("time() - min by (kind) (rlt_operator_cache_updated_timestamp_seconds)", "{{kind}}"),
                    ),
                    unit="s",
                    minimum=0,
                ),
                Panel(
                    title="Watch events",
                    description="Changes that watches received, by kind.",
                    queries=(query_rate("rlt_operator_watch_events_total", "kind"),),
                    unit="ops",
                    minimum=0,
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel(
                    title="Leader",
                    description="1 for the replica that reconciles.",
                    queries=(Query("rlt_operator_leader", "{{pod}}"),),
                    minimum=0,
                    maximum=1,
                ),
                Panel(
                    title="Delay of the event loop",
                    description="How much later than requested the event loop resumes a task. Above 0.1 s: no CPU.",
                    queries=query_quantiles("rlt_operator_event_loop_delay_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Status writes and events",
                    description="Writes per second.",
                    queries=(
                        Query("sum (rate(rlt_operator_status_writes_total[$__rate_interval]))", "status"),
                        Query("sum (rate(rlt_operator_events_total[$__rate_interval]))", "events"),
                    ),
                    unit="ops",
                    minimum=0,
                ),
                Panel(
                    title="Webhook",
                    description="Admission reviews, by outcome.",
                    queries=(query_rate("rlt_operator_reviews_total", "outcome"),),
                    unit="ops",
                    minimum=0,
                    requires="the webhook",
                ),
                Panel(
                    title="Certificate",
                    description="Time until the webhook's certificate expires.",
                    queries=(
                        Query(
                            "min by (pod) (rlt_operator_webhook_certificate_expiry_timestamp_seconds > 0) - time()",
                            "{{pod}}",
                        ),
                    ),
                    type="stat",
                    unit="s",
                    requires="the webhook",
                ),
            ),
        ),
    ),
)
