"""Keeps the failure of one job from the others: an exception, or a reconciliation that blocks the event loop.

Both are reported in the job's status as InternalError, and delay only this job, longer each time. An exception may come
from the answer of the job's head. The job is then reconciled as if its head did not answer, so that cancellation,
suspension and deadlines still apply.
"""

from __future__ import annotations

import logging

from rlt_core.ray_http import Send
from rlt_operator import metrics
from rlt_operator.reconcile import blocking
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.reconcile import reconcile
from rlt_operator.work_queue import Key, Result

log = logging.getLogger("rlt_operator")


async def reconcile_isolated(sources: Sources, send: Send, events: EventWriter, failures: Failures, key: Key) -> Result:
    """Reconcile the job once, unless it is delayed. An exception is reported, not raised."""
    if (wait := failures.count_wait(key)) is not None:
        return Result(wait)
    name = "/".join(key)
    work = reconcile(sources, send, events, failures, key)
    try:
        result, seconds = await blocking.measure_blocking(work, name)
    except Exception as error:
        metrics.ERRORS.labels(error=type(error).__name__).inc()
        failures.log(key, f"reconciliation of {name} failed: {type(error).__name__}", error)
        if sources.poller.distrust(key, type(error).__name__):
            return Result(requeue_after=0)
        return await failures.report_exception(key, error)
    if seconds > blocking.MAX_BLOCKING_S:
        log.warning("reconciliation of %s blocked all jobs for %.1f s", name, seconds, extra={"job": name})
        return result if result.gone else await failures.report_blocking(key, seconds)
    failures.end_quarantine(key)
    return result
