"""The operator process: watch, reconcile, and serve metrics until a signal stops it.

Every replica watches the jobs. The leader alone reconciles and writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import math
from dataclasses import dataclass

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
from rlt_operator.deleted_jobs import DeletedJobs
from rlt_operator.http_server import Ports
from rlt_operator.leader_election import LeaderElection, LeaseLocation, create_identity
from rlt_operator.leadership import FencedApi, Leadership, fence
from rlt_operator.ray.poller import RayPoller
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.isolation import reconcile_isolated
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.orphans import count_orphans
from rlt_operator.reconcile.sandbox_pools import keep_sandbox_pools
from rlt_operator.reconcile.unused_programs import delete_unused_programs
from rlt_operator.tasks import measure_loop_delay, start, stop_on_signal, wait_for_first
from rlt_operator.token_key import KeyLocation, load_token_key
from rlt_operator.watch import KopfWatch
from rlt_operator.webhook.certificates import CertificateLocation, keep_certificate
from rlt_operator.work_queue import WorkQueue

RETRY_INTERVAL_S = 2.0
"""Interval between attempts to reach the API server at the start."""
FORBIDDEN = 403
"""HTTP status of a list in a namespace that does not exist, or in which the operator has no Role."""

log = logging.getLogger("rlt_operator")


async def run(
    *,
    selection: Selection,
    ports: Ports,
    certificate: CertificateLocation | None,
    access: NetworkAccess | None,
    runtimes: RuntimePolicy,
    lease: LeaseLocation | None,
    token_key: KeyLocation | None,
    usage_records: str | None,
) -> None:
    """Run until SIGTERM or SIGINT. Without a Lease this process leads from the start; a shard needs one.

    `certificate`, `usage_records`: where the leader stores the webhook's own certificate and the usage of deleted jobs.

    Raises ApiError if the jobs or the Lease cannot be read, for example without the CRD, and LeadershipLostError.
    """
    stop = stop_on_signal()
    synced = asyncio.Event()
    leadership = Leadership()
    identity = create_identity()
    connected, api = await _connect(leadership, identity)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connected.close)
        crds = CrdCheck(api)
        ready = {
            "stopping": lambda: not stop.is_set(),
            "the cache is not complete": synced.is_set,
            "the CRDs are too old": lambda: not crds.describe(),
        }
        await stack.enter_async_context(await http_server.serve(ports, ready=ready, api=connected))
        if certificate:
            start(_write_certificate(api, certificate), stack)
        log.info("serving", extra={"namespaces": str(selection), "inCluster": client.in_cluster()})
        tasks = [asyncio.create_task(stop.wait())]
        if lease:
            election = LeaderElection(connected, lease, leadership, identity=identity, shard=selection.shard)
            stack.push_async_callback(election.release)
            tasks.append(start(election.run(after=synced), stack))
        else:
            leadership.extend(math.inf)
        tokens = ray_http.RayTokens()
        send = fence(await _connect_to_heads(connected, tokens, stack), leadership)
        queue = WorkQueue(
            lambda key: reconcile_isolated(sources, send, events, failures, key), lambda key: sources.cache.has_job(key)
        )
        kopf_watch = KopfWatch()
        poller = RayPoller(send, queue.wake)
        sources = Sources(api, Cache(queue.wake, kopf_watch.select), poller, runtimes, access, tokens, selection.shard)
        deleted = DeletedJobs(usage_records)
        sources.cache.jobs.on_removed = deleted.note
        events = EventWriter(api)
        failures = Failures(api, sources.cache, events, crds.check_and_describe)
        stack.push_async_callback(events.flush)
        stack.push_async_callback(sources.poller.close)
        stack.push_async_callback(queue.close)
        reconciliation = Reconciliation(api, selection, sources, token_key, queue, kopf_watch, crds, deleted, synced)
        tasks.append(start(reconciliation.run(stack), stack))
        await wait_for_first(tasks)
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
    kopf_watch: KopfWatch
    crds: CrdCheck
    deleted: DeletedJobs
    synced: asyncio.Event
    """Set when the cache is complete."""

    async def run(self, stack: contextlib.AsyncExitStack) -> None:
        """Run until a part of it ends. Raises its error. The exit of the stack ends the other parts."""
        metrics.SHARDS.set(self.selection.shard.total)
        _count_from(self.sources.cache)
        start(measure_loop_delay(), stack)
        await check_access(self.api, self.selection)
        cache = self.sources.cache
        self.crds.on_change = cache.read_jobs_again
        start(self.crds.run(), stack)
        await self.crds.checked.wait()
        watching = start(cache.watches.run(self.api, self.selection), stack)
        with_kopf = start(self.kopf_watch.run(cache.receive_job, self.queue.wake_all), stack)
        await wait_for_first([watching, with_kopf, start(self._lead(), stack)])

    async def _lead(self) -> None:
        """Wait for the cache and the leadership, then reconcile until cancelled."""
        await self.sources.cache.watches.wait()
        gc.collect()
        gc.freeze()  # what remains is not searched for garbage again, which would block the event loop
        self.synced.set()
        await self.api.leadership.acquired.wait()
        self.sources.tokens.key = await load_token_key(self.api, self.token_key)
        self.queue.start()
        await delete_unused_programs(self.api, self.sources.cache)
        await asyncio.gather(self.deleted.record(self.api), keep_sandbox_pools(self.api, self.sources.cache))


def _count_from(cache: Cache) -> None:
    """Compute the metrics of the cache when they are scraped."""
    metrics.ORPHANS.set_function(lambda: count_orphans(cache))
    metrics.UNAVAILABLE_NAMESPACES.set_function(cache.watches.count_unavailable)


async def _connect_to_heads(
    connected: KubernetesApi, tokens: ray_http.RayTokens, stack: contextlib.AsyncExitStack
) -> Send:
    """How requests to heads are sent: to the IPs of their pods, or through the API server from outside the cluster."""
    if not client.in_cluster():
        return ray_http.through_pod_proxy(connected, tokens)
    connector = aiohttp.TCPConnector(limit=0)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, auto_decompress=False))
    return ray_http.to_pod_ip(session, tokens)


async def _connect(leadership: Leadership, identity: str) -> tuple[KubernetesApi, FencedApi]:
    """Connect to the API server. The writes of the second one need the leadership."""
    connected = await client.connect(f"rlt-operator/{importlib.metadata.version('rlt-operator')} ({identity})")
    api = FencedApi(connected.client, leadership=leadership)
    connected.on_response = api.on_response = metrics.count_api_request
    return connected, api


async def _write_certificate(api: FencedApi, location: CertificateLocation) -> None:
    """Create, store and renew the webhook's certificate while this process leads."""
    await api.leadership.acquired.wait()
    await keep_certificate(api, location, leads=lambda: api.leadership.valid)


async def check_access(api: KubernetesApi, selection: Selection) -> None:
    """Wait until the API server is available.

    Raises ApiError if the CRD is missing, or if the selected namespaces, or the jobs of all namespaces, cannot be
    listed. A namespace by name that does not exist, or without the operator's Role, does not affect the others.
    """
    if selection.by_watch:
        query = {"labelSelector": selection.labels} if selection.labels else {}
        await _list_one(api, api_paths.NAMESPACES, **query)
        return
    for namespace in selection.list_names():
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
