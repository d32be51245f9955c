"""Keeps the failure of one job from the others: an exception, or a reconciliation that blocks the event loop.

Both are reported in the job's status as InternalError, and delay only this job, longer each time. An exception may come
from the answer of the job's head. The job is then reconciled as if its head did not answer, so that cancellation,
suspension and deadlines still apply.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from rlt_core.ray_http import Send
from rlt_operator import metrics
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.reconcile import reconcile
from rlt_operator.work_queue import Key, Result

MAX_BLOCKING_S = 1.0
"""CPU time between two awaits of a reconciliation from which the job is delayed. The Lease is renewed in between."""

T = TypeVar("T")

log = logging.getLogger("rlt_operator")


async def reconcile_isolated(sources: Sources, send: Send, events: EventWriter, failures: Failures, key: Key) -> Result:
    """Reconcile the job once, unless it is delayed. An exception is reported, not raised."""
    if (wait := failures.count_wait(key)) is not None:
        return Result(wait)
    try:
        result, seconds = await measure_blocking(reconcile(sources, send, events, failures, key))
    except Exception as error:
        metrics.ERRORS.labels(error=type(error).__name__).inc()
        failures.log(key, f"reconciliation of {'/'.join(key)} failed: {type(error).__name__}", error)
        if sources.poller.distrust(key, type(error).__name__):
            return Result(requeue_after=0)
        return await failures.report_exception(key, error)
    if seconds > MAX_BLOCKING_S:
        name = "/".join(key)
        log.warning("reconciliation of %s blocked all jobs for %.1f s", name, seconds, extra={"job": name})
        return result if result.gone else await failures.report_blocking(key, seconds)
    failures.end_quarantine(key)
    return result


@coroutine
def measure_blocking(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, tuple[T, float]]:
    """Await the coroutine. Returns its result, and its longest CPU time between two awaits in seconds."""
    longest = 0.0
    thrown: BaseException | None = None
    while True:
        started = time.thread_time()
        try:
            awaited = work.throw(thrown) if thrown else work.send(None)
        except StopIteration as end:
            return end.value, max(longest, time.thread_time() - started)
        longest = max(longest, time.thread_time() - started)
        thrown = None
        try:
            yield awaited
        except BaseException as error:  # a cancellation
            thrown = error
