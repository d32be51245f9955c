"""The operator process: watch, reconcile, and serve metrics and the webhook until a signal stops it.

Every replica watches the jobs and serves the webhook. The leader alone reconciles and writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import math
import signal
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_core import ray_http
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.kubernetes import api_paths, client
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Send
from rlt_operator import http_server, metrics
from rlt_operator.cache.cache import Cache
from rlt_operator.cache.watches import Selection
from rlt_operator.crd_check import CrdCheck
from rlt_operator.leader_election import LeaderElection, LeaseLocation, create_identity
from rlt_operator.leadership import FencedApi, Leadership, fence
from rlt_operator.ray.poller import RayPoller
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.isolation import reconcile_isolated
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.unused_programs import delete_unused_programs
from rlt_operator.token_key import KeyLocation, load_token_key
from rlt_operator.watch import watch
from rlt_operator.webhook import server as webhook_server
from rlt_operator.webhook.certificates import CertificateLocation, keep_certificate, serve_folder
from rlt_operator.webhook.server import Tls
from rlt_operator.work_queue import WorkQueue

RETRY_INTERVAL_S = 2.0
"""Interval between attempts to reach the API server at the start."""
FORBIDDEN = 403
"""HTTP status of a list in a namespace that does not exist, or in which the operator has no Role."""
LOOP_DELAY_INTERVAL_S = 0.05
"""Interval between measurements of the event loop's delay."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class Webhook:
    """How to serve the admission webhook."""

    port: int
    certificates: CertificateLocation | Path
    """Where the operator stores its own certificate, or a folder that another program fills."""


async def run(
    *,
    selection: Selection,
    metrics_port: int,
    webhook: Webhook | None,
    access: NetworkAccess | None,
    runtimes: RuntimePolicy,
    lease: LeaseLocation | None,
    token_key: KeyLocation | None,
) -> None:
    """Run until SIGTERM or SIGINT. Without a Lease this process leads from the start.

    Raises ApiError if the jobs or the Lease cannot be read, for example without the CRD, and LeadershipLostError.
    """
    stop = asyncio.Event()
    synced = asyncio.Event()
    leadership = Leadership()
    identity = create_identity()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connected = await client.connect(f"rlt-operator/{importlib.metadata.version('rlt-operator')} ({identity})")
    api = FencedApi(connected.client, leadership=leadership)
    connected.on_response = api.on_response = metrics.count_api_request
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connected.close)
        tls = Tls() if webhook else None
        crds = CrdCheck(api)
        ready = {
            "stopping": lambda: not stop.is_set(),
            "the cache is not complete": synced.is_set,
            "the webhook has no certificate": lambda: tls is None or tls.has_certificate,
            "the CRDs are too old": lambda: not crds.describe(),
        }
        stack.push_async_callback((await http_server.serve(metrics_port, ready=ready)).cleanup)
        if webhook and tls:
            await _serve_webhook(api, webhook, tls, runtimes, stack)
        log.info("serving", extra={"namespaces": str(selection), "inCluster": client.in_cluster()})
        tasks = [asyncio.create_task(stop.wait())]
        if lease:
            election = LeaderElection(connected, lease, leadership, identity=identity)
            stack.push_async_callback(election.release)
            tasks.append(_start(election.run(after=synced), stack))
        else:
            leadership.extend(math.inf)
        tokens = ray_http.RayTokens()
        send = fence(await _connect_to_heads(connected, tokens, stack), leadership)
        queue = WorkQueue(
            lambda key: reconcile_isolated(sources, send, events, failures, key), lambda key: sources.cache.has_job(key)
        )
        sources = Sources(api, Cache(queue.wake), RayPoller(send, queue.wake), runtimes, access, tokens)
        events = EventWriter(api)
        failures = Failures(api, sources.cache, events, crds.check_and_describe)
        stack.push_async_callback(events.flush)
        stack.push_async_callback(sources.poller.close)
        stack.push_async_callback(queue.close)
        reconciliation = Reconciliation(api, selection, sources, token_key, queue, crds, synced)
        tasks.append(_start(reconciliation.run(stack), stack))
        await _wait_for_first(tasks)
    log.info("stopped")


@dataclass(frozen=True)
class Reconciliation:
    """What reads the jobs in every replica, and reconciles them in the leader."""

    api: FencedApi
    selection: Selection
    sources: Sources
    token_key: KeyLocation | None
    """Where the key for the tokens of Ray is; None if it is not stored."""
    queue: WorkQueue
    crds: CrdCheck
    synced: asyncio.Event
    """Set when the cache is complete."""

    async def run(self, stack: contextlib.AsyncExitStack) -> None:
        """Run until a part of it ends. Raises its error. The exit of the stack ends the other parts."""
        metrics.UNAVAILABLE_NAMESPACES.set_function(self.sources.cache.watches.count_unavailable)
        _start(_measure_loop_delay(), stack)
        await check_access(self.api, self.selection)
        watching = _start(self.sources.cache.watches.run(self.api, self.selection), stack)
        _start(self.crds.run(), stack)
        await _wait_for_first([watching, _start(self._lead(), stack)])

    async def _lead(self) -> None:
        """Wait for the cache and the leadership, then reconcile."""
        await self.sources.cache.watches.wait()
        gc.collect()
        gc.freeze()  # what remains is not searched for garbage again, which would block the event loop
        self.synced.set()
        await self.api.leadership.acquired.wait()
        self.sources.tokens.key = await load_token_key(self.api, self.token_key)
        self.queue.start()
        await delete_unused_programs(self.api, self.sources.cache)
        await watch(self.queue.wake_all)


async def _connect_to_heads(
    connected: KubernetesApi, tokens: ray_http.RayTokens, stack: contextlib.AsyncExitStack
) -> Send:
    """How requests to heads are sent: to the IPs of their pods, or through the API server from outside the cluster."""
    if not client.in_cluster():
        return ray_http.through_pod_proxy(connected, tokens)
    connector = aiohttp.TCPConnector(limit=0)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, auto_decompress=False))
    return ray_http.to_pod_ip(session, tokens)


async def _measure_loop_delay() -> None:
    """Measure until cancelled how long the event loop is blocked, or waits for the CPU."""
    loop = asyncio.get_running_loop()
    while True:
        wanted = loop.time() + LOOP_DELAY_INTERVAL_S
        await asyncio.sleep(LOOP_DELAY_INTERVAL_S)
        metrics.LOOP_DELAY_SECONDS.observe(max(0.0, loop.time() - wanted))


async def _wait_for_first(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait until a task ends. Raises its error: the operator exits rather than work with a part that has failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _start(work: Coroutine[Any, Any, None], stack: contextlib.AsyncExitStack) -> asyncio.Task[Any]:
    """Start a task that the exit of the stack cancels and waits for."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)
    return task


async def _serve_webhook(
    api: FencedApi, webhook: Webhook, tls: Tls, runtimes: RuntimePolicy, stack: contextlib.AsyncExitStack
) -> None:
    stack.push_async_callback((await webhook_server.serve(webhook.port, tls, api, runtimes)).cleanup)
    source = webhook.certificates
    if isinstance(source, Path):
        _start(serve_folder(source, tls.load), stack)
    else:
        _start(keep_certificate(api, source, tls.load, leads=lambda: api.leadership.valid), stack)


async def check_access(api: KubernetesApi, selection: Selection) -> None:
    """Wait until the API server is available.

    Raises ApiError if the CRD is missing, or if the selected namespaces, or the jobs of all namespaces, cannot be
    listed. A namespace by name that does not exist, or without the operator's Role, does not affect the others.
    """
    if selection.labels:
        await _list_one(api, api_paths.NAMESPACES, labelSelector=selection.labels)
        return
    for namespace in selection.names or (None,):
        try:
            await _list_one(api, api_paths.jobs(namespace))
        except ApiError as error:
            if namespace is None or error.status != FORBIDDEN:
                raise
            log.warning("namespace %s: %s", namespace, error)


async def _list_one(api: KubernetesApi, path: str, **query: str) -> None:
    """List one object. Repeats the request until the API server answers. Raises ApiError if it rejects it."""
    while True:
        try:
            await api.list(path, limit="1", **query)
            return
        except ApiError as error:
            if error.rejected:
                raise ApiError(error.status, f"cannot list {path}: {error}") from error
            log.warning("waiting for the API server: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_S)
