"""The dashboard Operator."""

from __future__ import annotations

from monitoring.dashboard_queries import query_quantiles, query_rate
from monitoring.grafana import Dashboard, Panel, Query, Row

# fmt: off
OPERATOR = Dashboard(
    uid="rlt-operator",
    title="rlt / Operator",
    rows=(
        Row(
            "Reconciliation",
            (
                Panel("Reconciliations", "Reconciliations per second, by phase of the job.",
                      (query_rate("rlt_operator_reconcile_duration_seconds_count", "phase"),), unit="ops", minimum=0),
                Panel("Duration", "Duration of a reconciliation.",
                      query_quantiles("rlt_operator_reconcile_duration_seconds"), unit="s"),
                Panel("Errors", "Exceptions, and requests that failed, by reason.",
                      (query_rate("rlt_operator_reconcile_errors_total", "error"),
                       query_rate("rlt_operator_request_failures_total", "reason")),
                      unit="ops", minimum=0, requires="errors"),
                Panel("Queue", "Jobs that wait for their reconciliation.",
                      (Query("rlt_operator_queue_depth", "{{pod}}"),), minimum=0),
                Panel("Wait in the queue", "Time from a wake to the reconciliation.",
                      query_quantiles("rlt_operator_queue_wait_seconds"), unit="s"),
                Panel("Oldest wake", "Age of the oldest wake that no reconciliation has completed since.",
                      (Query("rlt_operator_queue_oldest_seconds", "{{pod}}"),), unit="s", minimum=0),
            ),
        ),
        Row(
            "API server and Ray",
            (
                Panel("API requests", "Requests to the API server, by method and status.",
                      (query_rate("rlt_operator_api_requests_total", "method", "code"),), unit="reqps", minimum=0),
                Panel("Polls of Ray heads", "Duration of a Ray head poll.",
                      query_quantiles("rlt_operator_ray_poll_duration_seconds"), unit="s"),
                Panel("Heads", "Ray heads that are polled, and polls per second that a head did not answer.",
                      (Query("rlt_operator_polled_heads", "{{pod}} heads"),
                       Query("rate(rlt_operator_ray_poll_errors_total[$__rate_interval])", "{{pod}} errors")),
                      minimum=0),
                Panel("Cache", "Objects in the cache of the leader, by kind.",
                      (Query("max by (kind) (rlt_operator_cache_objects)", "{{kind}}"),), minimum=0),
                Panel("Age of the cache",
                      "Time since the latest list, change or bookmark. Bookmarks come about once a minute.",
                      (Query("time() - min by (kind) (rlt_operator_cache_updated_timestamp_seconds)", "{{kind}}"),),
                      unit="s", minimum=0),
                Panel("Watch events", "Changes that watches received, by kind.",
                      (query_rate("rlt_operator_watch_events_total", "kind"),), unit="ops", minimum=0),
            ),
        ),
        Row(
            "Process",
            (
                Panel("Leader", "1 for the replica that reconciles, by shard.",
                      (Query("rlt_operator_leader", "{{pod}} {{shard}}"),), minimum=0, maximum=1),
                Panel("Delay of the event loop",
                      "How much later than requested the event loop resumes a task. Above 0.1 s: no CPU.",
                      query_quantiles("rlt_operator_event_loop_delay_seconds"), unit="s"),
                Panel("Status writes and events", "Writes per second.",
                      (Query("sum (rate(rlt_operator_status_writes_total[$__rate_interval]))", "status"),
                       Query("sum (rate(rlt_operator_events_total[$__rate_interval]))", "events")),
                      unit="ops", minimum=0),
                Panel("Webhook", "Admission reviews, by outcome.",
                      (query_rate("rlt_operator_reviews_total", "outcome"),), unit="ops", minimum=0,
                      requires="the webhook"),
                Panel("Certificate", "Time until the webhook's certificate expires.",
                      (Query("min by (pod) (rlt_operator_webhook_certificate_expiry_timestamp_seconds > 0) - time()",
                             "{{pod}}"),),
                      type="stat", unit="s", requires="the webhook"),
            ),
        ),
    ),
)
