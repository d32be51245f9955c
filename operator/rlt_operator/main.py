"""The running operator: watch, look, serve metrics, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from rlt_core import ray_http
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths, client
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Send
from rlt_operator import http_server, metrics
from rlt_operator.reconcile.apply import apply
from rlt_operator.reconcile.observe import observe
from rlt_operator.reconcile.plan import Plan
from rlt_operator.watch import watch
from rlt_operator.webhook import certificates
from rlt_operator.webhook import server as webhook_server
from rlt_operator.webhook.certificates import Places
from rlt_operator.webhook.server import Tls
from rlt_operator.work_queue import Key, Result, WorkQueue

MAX_CONCURRENT_RECONCILES = 16
"""Jobs that are looked at at the same time."""
RETRY_S = 2.0
"""Between attempts to reach the API server at the start."""
RESYNC_S = 30.0
"""Between lists of all jobs, for what a watch may have missed; also the sign of life of the API server."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class Webhook:
    """How the admission webhook is served."""

    port: int
    certificates: Places | Path
    """Where the operator keeps its own certificate, or the folder with somebody else's."""


async def run(*, namespaces: Collection[str], metrics_port: int, webhook: Webhook | None) -> None:
    """Serve jobs until SIGTERM or SIGINT. Raises ApiError if the jobs cannot be listed, without the CRD for one."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    api = await client.connect()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(api.client.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        inside = client.in_cluster()
        send = ray_http.through_service(session) if inside else ray_http.through_api_server(api)

        async def look(key: Key) -> Result:
            return await look_at(api, send, key)

        queue = WorkQueue(look, on_error=metrics.ERRORS.inc, at_once=MAX_CONCURRENT_RECONCILES)
        stack.push_async_callback(queue.close)
        for key in await _first_jobs(api, namespaces):
            queue.wake(key)
        tls = await _serve_webhook(api, webhook, stack) if webhook else None
        server = await http_server.serve(
            metrics_port,
            last_answer=lambda: api.last_answer,
            ready=lambda: not stop.is_set() and (tls is None or tls.has_certificate),
        )
        stack.push_async_callback(server.cleanup)
        log.info("serving", extra={"namespaces": ", ".join(namespaces) or "all", "inCluster": inside})
        resync = asyncio.create_task(_resync(api, namespaces, queue))
        stack.callback(resync.cancel)
        await watch(queue, namespaces=namespaces, stop=stop)
    log.info("stopped")


async def _serve_webhook(api: KubernetesApi, webhook: Webhook, stack: contextlib.AsyncExitStack) -> Tls:
    tls = Tls()
    stack.push_async_callback((await webhook_server.serve(webhook.port, tls, api)).cleanup)
    source = webhook.certificates
    looks = (
        certificates.follow(source, tls.show) if isinstance(source, Path) else certificates.keep(api, source, tls.show)
    )
    stack.callback(asyncio.create_task(looks).cancel)
    return tls


async def look_at(api: KubernetesApi, send: Send, key: Key) -> Result:
    """One look: observe, plan, apply."""
    namespace, name = key
    started = time.monotonic()
    observed = await observe(api, send, namespace=namespace, name=name)
    if observed is None:
        metrics.forget(namespace, name)
        return Result(gone=True)
    try:
        done = await apply(api, send, observed, datetime.now(UTC))
    except ApiError as error:
        if error.status in (404, 409):  # the job has changed, or is gone
            return Result(requeue_after=0)
        raise
    metrics.record(observed.job, done)
    metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
    _tell(observed.job, done)
    return Result(done.requeue_after)


def _tell(job: Job, plan: Plan) -> None:
    about = {"job": f"{job.namespace}/{job.name}"}
    if plan.status is None:
        return
    if plan.status.phase != job.status.phase:
        log.info("phase %s", plan.status.phase, extra=about)
    for event in plan.events:
        level = logging.WARNING if event.type == "Warning" else logging.INFO
        log.log(level, event.message, extra=about | {"reason": event.reason})


async def _all_jobs(api: KubernetesApi, namespaces: Collection[str]) -> list[Key]:
    everywhere: Collection[str | None] = namespaces or [None]
    lists = [await api.list(api_paths.jobs(namespace)) for namespace in everywhere]
    return [(job["metadata"]["namespace"], job["metadata"]["name"]) for jobs in lists for job in jobs]


async def _first_jobs(api: KubernetesApi, namespaces: Collection[str]) -> list[Key]:
    """All jobs, as soon as the API server has got over its own start."""
    while True:
        try:
            return await _all_jobs(api, namespaces)
        except ApiError as error:
            if error.refused:
                raise
            log.warning("waiting for the API server: %s", error)
            await asyncio.sleep(RETRY_S)


async def _resync(api: KubernetesApi, namespaces: Collection[str], queue: WorkQueue) -> None:
    while True:
        await asyncio.sleep(RESYNC_S)
        try:
            for key in await _all_jobs(api, namespaces):
                queue.wake_if_new(key)
        except ApiError as error:
            log.warning("the jobs cannot be listed: %s", error)
