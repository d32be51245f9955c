"""The operator process: watch, reconcile, and serve metrics and the webhook until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from rlt_api.runtime_policy import RuntimePolicy
from rlt_core import ray_http
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.kubernetes import api_paths, client
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import http_server, metrics
from rlt_operator.cache.cache import Cache
from rlt_operator.crd_check import CrdCheck
from rlt_operator.ray.poller import RayPoller
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.reconcile import reconcile
from rlt_operator.watch import watch
from rlt_operator.webhook import server as webhook_server
from rlt_operator.webhook.certificates import CertificateLocation, keep_certificate, serve_folder
from rlt_operator.webhook.server import Tls
from rlt_operator.work_queue import WorkQueue

RETRY_INTERVAL_S = 2.0
"""Interval between attempts to reach the API server at the start."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class Webhook:
    """How to serve the admission webhook."""

    port: int
    certificates: CertificateLocation | Path
    """Where the operator stores its own certificate, or a folder that another program fills."""


async def run(
    *,
    namespaces: Collection[str],
    metrics_port: int,
    webhook: Webhook | None,
    access: NetworkAccess | None,
    runtimes: RuntimePolicy,
) -> None:
    """Run until SIGTERM or SIGINT. Raises ApiError if the jobs cannot be listed, for example without the CRD."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    api = await client.connect()
    api.on_response = metrics.count_api_request
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(api.client.close)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        in_cluster = client.in_cluster()
        send = ray_http.to_pod_ip(session) if in_cluster else ray_http.through_pod_proxy(api)
        queue = WorkQueue(lambda key: reconcile(sources, send, events, failures, key), on_error=metrics.ERRORS.inc)
        sources = Sources(api, Cache(queue.wake), RayPoller(send, queue.wake), runtimes, access)
        events, crds = EventWriter(api), CrdCheck(api)
        failures = Failures(api, sources.cache, events, crds.check_and_describe)
        stack.push_async_callback(sources.poller.close)
        stack.push_async_callback(queue.close)
        await _check_access(api, namespaces)
        watches = sources.cache.start(api, namespaces)
        for task in watches:
            stack.callback(task.cancel)
        tls = await _serve_webhook(api, webhook, runtimes, stack) if webhook else None
        server = await http_server.serve(
            metrics_port,
            last_response=lambda: api.last_response,
            ready=lambda: (
                not stop.is_set()
                and sources.cache.synced
                and (tls is None or tls.has_certificate)
                and not crds.describe()
            ),
        )
        stack.push_async_callback(server.cleanup)
        log.info("serving", extra={"namespaces": ", ".join(namespaces) or "all", "inCluster": in_cluster})
        checks = asyncio.create_task(crds.run())
        stack.callback(checks.cancel)
        await sources.cache.wait()
        queue.start()
        await watch(queue, namespaces=namespaces, stop=stop)
    log.info("stopped")


async def _serve_webhook(
    api: KubernetesApi, webhook: Webhook, runtimes: RuntimePolicy, stack: contextlib.AsyncExitStack
) -> Tls:
    tls, source = Tls(), webhook.certificates
    stack.push_async_callback((await webhook_server.serve(webhook.port, tls, api, runtimes)).cleanup)
    certificates = (
        serve_folder(source, tls.load) if isinstance(source, Path) else keep_certificate(api, source, tls.load)
    )
    stack.callback(asyncio.create_task(certificates).cancel)
    return tls


async def _check_access(api: KubernetesApi, namespaces: Collection[str]) -> None:
    """Wait until the API server is available. Raises ApiError if the jobs cannot be listed."""
    while True:
        try:
            every: list[str | None] = [*namespaces] or [None]
            for namespace in every:
                await api.list(api_paths.jobs(namespace), limit="1")
            return
        except ApiError as error:
            if error.rejected:
                raise
            log.warning("waiting for the API server: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_S)
