"""One reconciliation of a job: observe, plan, apply, then write the status and its events."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime

from rlt_core.job import Job
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Send
from rlt_operator import metrics
from rlt_operator.reconcile.apply import apply, create_event, write_status
from rlt_operator.reconcile.observe import observe
from rlt_operator.reconcile.plan import Plan, plan
from rlt_operator.work_queue import Key, Result

log = logging.getLogger("rlt_operator")


async def reconcile(api: KubernetesApi, send: Send, key: Key) -> Result:
    """Reconcile the job once. Raises ApiError; the work queue then retries with backoff."""
    namespace, name = key
    started = time.monotonic()
    observed = await observe(api, send, namespace=namespace, name=name)
    if observed is None:
        metrics.forget_job(namespace, name)
        return Result(gone=True)
    job, now = observed.job, datetime.now(UTC)
    planned = plan(observed, now)
    try:
        rejection = await apply(api, send, job, planned)
        if rejection is not None:
            planned = plan(replace(observed, rejection=rejection), now)
        if planned.status is not None:
            await write_status(api, job, planned.status)
            for event in planned.events:
                await create_event(api, job, event, now)
    except ApiError as error:
        if error.status in (404, 409):  # the job has changed or is deleted
            return Result(requeue_after=0)
        raise
    if planned.status is not None:
        _log_transitions(job, planned)
        metrics.count_status_write(planned.events)
    metrics.record_job(job, planned.status or job.status)
    metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
    return Result(planned.requeue_after)


def _log_transitions(job: Job, plan: Plan) -> None:
    about = {"job": f"{job.namespace}/{job.name}"}
    if plan.status and plan.status.phase != job.status.phase:
        log.info("phase %s", plan.status.phase, extra=about)
    for event in plan.events:
        level = logging.WARNING if event.type == "Warning" else logging.INFO
        log.log(level, event.message, extra=about | {"reason": event.reason})
