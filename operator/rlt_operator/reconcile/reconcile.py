"""One reconciliation of a job: observe, plan, apply, then write the status and its events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime

from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.kubernetes.fair_queue import Urgency
from rlt_core.kubernetes.fair_slots import set_urgency
from rlt_core.ray_http import Send
from rlt_operator import metrics
from rlt_operator.observation import choose_progress_interval
from rlt_operator.reconcile.apply import apply, label_shard, patch_status, write_status
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.observe import (
    Sources,
    choose_target,
    is_undisturbed,
    is_unknown,
    list_others,
    observe,
    read_kuberay,
)
from rlt_operator.reconcile.orphans import report_orphan
from rlt_operator.reconcile.plan import Plan, choose_urgency, creates_cluster, is_irreversible, plan
from rlt_operator.reconcile.reported_step import keep_undisturbed, plan_report
from rlt_operator.reconcile.unused_programs import delete_unused_programs
from rlt_operator.transitions import observe_transition
from rlt_operator.work_queue import Key, Result

CRD_AGE_S = 1.0
"""Maximum age of the RayCluster CRD when a RayCluster is created: the jobs of a sweep share a read."""

log = logging.getLogger("rlt_operator")


async def reconcile(sources: Sources, send: Send, events: EventWriter, failures: Failures, key: Key) -> Result:
    """Reconcile the job once. A failed request is reported in the job's status and retried with backoff."""
    api = sources.api
    cache = sources.cache
    poller = sources.poller
    started = time.monotonic()
    set_urgency(Urgency.NORMAL)
    if (wait := failures.count_wait(key)) is not None:
        return Result(wait)
    now = datetime.now(UTC)
    others = list_others(cache, key)
    try:
        if (step := await _record_report(sources, failures, key, others, now)) is not None:
            return step
        observed = await observe(sources, key)
        planned = plan(observed, now) if observed and not is_unknown(observed) else None
        if observed and planned:
            set_urgency(choose_urgency(observed.job.status, planned))
        if observed and planned and is_irreversible(observed.job.status, planned):
            await _refresh(sources, key, planned)
            refreshed = await observe(sources, key)
            if refreshed != observed:
                planned = None
            observed = refreshed
    except ApiError as error:
        return await failures.report(key, "read what belongs to the job", error)
    if observed is None:
        await _forget(sources, events, failures, key)
        return Result(gone=True)
    if is_unknown(observed):
        return Result()  # the first answer of the head wakes the job
    job = observed.job
    target = choose_target(observed)
    await events.restore(job, job.status, now)
    planned = label_shard(planned or plan(observed, now), sources.shard)
    rejection = await apply(api, cache, send, sources.tokens, target.head if target else None, job, planned)
    if planned.submit or planned.stop:
        poller.nudge(key)
    if rejection is not None:
        rejection = failures.add(key, rejection, now)
        if rejection is None:
            return failures.wait(key, job.resource_version)
        planned = plan(replace(observed, rejection=rejection), now)
    version = job.resource_version
    try:
        if planned.status is not None:
            version = await write_status(api, cache, job, planned.status)
    except ApiError as error:
        return await _handle_rejected_status(sources, failures, key, error)
    if planned.status is not None:
        _report_transitions(events, job, planned, planned.status, now)
    status = planned.status or job.status
    metrics.JOBS.record(job, status, [pod.name for pod in observed.cluster_pods])
    metrics.RECONCILE_SECONDS.labels(phase=status.phase or "").observe(time.monotonic() - started)
    if rejection is not None:
        return failures.wait(key, version)
    failures.clear(key)
    if undisturbed := keep_undisturbed(observed, planned, version, others, now):
        sources.undisturbed[key] = undisturbed
    return Result(planned.requeue_after)


async def _record_report(
    sources: Sources, failures: Failures, key: Key, others: tuple[object, ...], now: datetime
) -> Result | None:
    """Reconcile a running job if nothing but the report of its head has changed; else return None. Raises ApiError."""
    started = time.monotonic()
    before = sources.undisturbed.pop(key, None)
    if before is None or not is_undisturbed(sources.cache, key, before, others):
        return None
    ray = sources.poller.get_answer(key)
    planned = plan_report(before, ray, choose_progress_interval(sources.poller.count()), now)
    if ray is None or planned is None:
        return None
    after = replace(before, ray=ray)
    if planned.status is not None:
        set_urgency(Urgency.PROGRESS)
        parts = (before.status.to_json(), planned.status.to_json())
        try:
            version = await patch_status(sources.api, sources.cache, key, before.version, *parts)
        except ApiError as error:
            return await _handle_rejected_status(sources, failures, key, error)
        after = replace(after, version=version, status=planned.status)
        metrics.STATUS_WRITES.inc()
        metrics.JOBS.record_report(*key, planned.status)
    sources.undisturbed[key] = after
    failures.clear(key)
    metrics.RECONCILE_SECONDS.labels(phase=Phase.RUNNING.value).observe(time.monotonic() - started)
    return Result(planned.requeue_after)


async def _handle_rejected_status(sources: Sources, failures: Failures, key: Key, error: ApiError) -> Result:
    if error.status in (404, 409):  # the job has changed or is deleted
        return await _read_again(sources, failures, key)
    return await failures.report(key, "write the status", error)


async def _forget(sources: Sources, events: EventWriter, failures: Failures, key: Key) -> None:
    """Drop what is kept about a job that no longer exists, or whose namespace is no longer selected."""
    failures.clear(key)
    events.forget(key)
    namespace, name = key
    metrics.JOBS.forget(namespace, name)
    sources.cache.written.discard(key)
    sources.cache.claims.pop(key, None)
    if sources.cache.watches.is_complete(namespace):
        await report_orphan(sources.api, sources.cache, key)
        await delete_unused_programs(sources.api, sources.cache, namespace)


async def _refresh(sources: Sources, key: Key, plan: Plan) -> None:
    """Read what the plan depends on from the API server. Raises ApiError.

    After an own status write the RayCluster is not read, because one that exists makes its creation fail. The job is:
    kopf does not report a job that was deleted while its watch was interrupted. The API server drops the fields that
    its CRD lacks, which may have changed since the last read.
    """
    cache = sources.cache
    reads: list[Awaitable[object]]
    if creates_cluster(plan) and key in cache.written:
        reads = [cache.refresh_job(sources.api, key), cache.refresh_pods(sources.api, key)]
    else:
        reads = [cache.refresh(sources.api, key)]
    if creates_cluster(plan):
        cache.recent.forget(api_paths.RAY_CLUSTER_CRD, older_than=CRD_AGE_S)
        reads.append(read_kuberay(sources))  # the next observation finds it among the recent reads
    await asyncio.gather(*reads)


async def _read_again(sources: Sources, failures: Failures, key: Key) -> Result:
    """The cache is behind the API server: read the job, and reconcile it at once."""
    try:
        await sources.cache.refresh(sources.api, key)
    except ApiError as error:
        return await failures.report(key, "read what belongs to the job", error)
    return Result(requeue_after=0)


def _report_transitions(events: EventWriter, job: Job, plan: Plan, status: RLTrainingJobStatus, now: datetime) -> None:
    """Write the events of the new status in the background, log them, and count what has changed."""
    events.start(job, plan.events, now)
    metrics.STATUS_WRITES.inc()
    observe_transition(job, status, now)
    about = {"job": f"{job.namespace}/{job.name}"}
    if status.phase != job.status.phase:
        log.info("phase %s", status.phase, extra=about)
    for event in plan.events:
        level = logging.WARNING if event.type == "Warning" else logging.INFO
        log.log(level, event.message, extra=about | {"reason": event.reason})
