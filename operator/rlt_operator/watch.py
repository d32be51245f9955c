"""kopf's part: it watches RLTrainingJobs and RLRuntimes, and hands each event to the operator's event loop.

The only module that imports kopf. kopf reports what exists and what changes. It does not report objects that were
deleted while a watch was interrupted: `rlt_operator.cache.job_list` finds those (ADR 14).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any, cast

import kopf
from kopf._cogs.structs.references import Insights, NamespaceName

from rlt_api.schema.crd import GROUP, PLURAL, RUNTIME_PLURAL, VERSION
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import PAGE_SIZE

MAX_BACKOFF_S = 30.0
"""Maximum delay before kopf is started again."""
ERROR_BACKOFFS_S = (1, 2, 4, 8, 16, *[30] * 20)
"""Delays of kopf's requests. It ends after the last one, and is then started again for all namespaces.

They are longer than the interval of the job lists, which tell it to leave a namespace that it may not read.
"""

Receive = Callable[[str | None, Manifest], object]
"""Called with an event on a job: ADDED, MODIFIED, DELETED, or None for a job that kopf has listed; and the job."""

log = logging.getLogger("rlt_operator")


class KopfWatch:
    """kopf in a thread with its own event loop, in the namespaces that were selected last.

    It replaces the signal handlers of a main thread, and at its end it cancels all tasks of its loop.
    """

    def __init__(self) -> None:
        self._namespaces: frozenset[str | None] = frozenset()
        self._selected = asyncio.Event()
        """Set while a namespace is selected."""
        self._notify: Callable[[], object] = lambda: None
        """Lets the running kopf read the namespaces. Callable from any thread."""

    def select(self, namespace: str | None, wanted: bool) -> None:
        """Watch the jobs of a namespace, or of all with None, or no longer."""
        if wanted == (namespace in self._namespaces):
            return
        self._namespaces = self._namespaces | {namespace} if wanted else self._namespaces - {namespace}
        if self._namespaces:
            self._selected.set()
        else:
            self._selected.clear()
        self._notify()

    async def run(self, receive: Receive, wake_all: Callable[[], object]) -> None:
        """Watch until cancelled. `receive` and `wake_all` are called in the event loop of the caller.

        A change of an RLRuntime wakes all jobs: RLRuntimes change rarely, and the queue does not know which jobs wait
        for one.
        """
        loop = asyncio.get_running_loop()
        registry = build_registry(
            lambda change, job: loop.call_soon_threadsafe(receive, change, job),
            lambda: loop.call_soon_threadsafe(wake_all),
        )
        failures = 0
        while True:
            await self._selected.wait()
            started = loop.time()
            try:
                await self._run_once(registry)
            except Exception as error:
                log.warning("kopf has ended and is started again: %s: %s", type(error).__name__, error)
            failures = failures + 1 if loop.time() - started < MAX_BACKOFF_S else 0
            await asyncio.sleep(min(MAX_BACKOFF_S, 2.0**failures) * random.uniform(0.5, 1.0))

    async def _run_once(self, registry: kopf.OperatorRegistry) -> None:
        """Run kopf in a thread until it ends. Raises its error."""
        stop = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(self._operate(registry, stop)))
        try:
            await asyncio.shield(running)
        finally:
            stop.set()
            await asyncio.wait([running])

    async def _operate(self, registry: kopf.OperatorRegistry, stop: threading.Event) -> None:
        """Run kopf in the event loop of its thread."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(changed.set)

        self._notify = notify
        insights = Insights()
        namespaces = self._namespaces
        following = asyncio.create_task(self._follow(insights, changed, stop))
        earlier = asyncio.all_tasks()
        try:
            roots = await kopf.spawn_tasks(
                registry=registry,
                settings=build_settings(),
                insights=insights,
                standalone=True,
                clusterwide=None in namespaces,
                namespaces=[each for each in namespaces if each],
                stop_flag=stop,
            )
            running = asyncio.create_task(kopf.run_tasks(roots, ignored=earlier))
            await asyncio.wait(roots)
            stop.set()
            end_watchers()
            await running
        finally:
            stop.set()  # a thread of kopf's loop waits for it, also if kopf has failed
            self._notify = lambda: None
            following.cancel()

    async def _follow(self, insights: Insights, changed: asyncio.Event, stop: threading.Event) -> None:
        """Keep kopf's namespaces equal to the selected ones. Ends kopf if the API server does not have jobs."""
        await insights.ready_namespaces.wait()
        await insights.ready_resources.wait()
        if PLURAL not in {each.plural for each in insights.watched_resources}:
            log.warning("the API server does not have %s.%s", PLURAL, GROUP)
            stop.set()
        while True:
            changed.clear()
            async with insights.revised:
                insights.namespaces.clear()
                insights.namespaces.update(None if each is None else NamespaceName(each) for each in self._namespaces)
                insights.revised.notify_all()
            await changed.wait()


def end_watchers() -> None:
    """End the watchers that kopf leaves behind when it fails. Call it when kopf's root tasks have ended.

    After 5 s kopf would cancel them once, together with their child tasks. A watcher that is sending a request then
    ignores the cancellation, and kopf never ends (kopf 1.45.2: clients/api.py: stream).
    """
    for task in asyncio.all_tasks():
        if task.get_name().startswith("watcher for "):
            task.cancel()


def build_registry(receive: Receive, wake_all: Callable[[], object]) -> kopf.OperatorRegistry:
    """The event handlers, which kopf calls in its thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        in_cluster = kopf.login_with_service_account(**arguments)
        return use_service_address(in_cluster) if in_cluster else kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def job_changed(event: kopf.RawEvent, **_: Any) -> None:
        receive(event["type"], cast(Manifest, event["object"]))

    @kopf.on.event(GROUP, VERSION, RUNTIME_PLURAL, registry=handlers)
    async def runtime_changed(**_: Any) -> None:
        wake_all()

    return handlers


def use_service_address(connection: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """The connection to the address in the pod's environment, as every other client uses. kopf's name needs a DNS."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return connection
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(connection, server=f"https://{address}:{port}")


class NoDiffBase(kopf.DiffBaseStorage):
    """No copies of objects: kopf compares them for handlers of changes, and the operator has none.

    kopf's default copies the object for each event, and parses an annotation that any user can write.
    """

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> Any:
        return {}

    def fetch(self, *, body: kopf.Body) -> None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        """Store nothing in the object."""


def build_settings() -> kopf.OperatorSettings:
    """kopf's settings, without the features that do more than watch."""
    pinned = kopf.OperatorSettings()
    pinned.peering.standalone = True  # every replica watches; the Lease decides which one writes
    pinned.posting.enabled = False  # `reconcile` creates the events
    pinned.scanning.disabled = True  # needs permissions on CRDs and namespaces
    pinned.persistence.diffbase_storage = NoDiffBase()
    # kopf removes its finalizer from objects that have it. No user can know this one.
    pinned.persistence.finalizer = f"{GROUP}/{uuid.uuid4()}"
    pinned.watching.server_timeout = 300
    pinned.watching.client_timeout = 330
    pinned.watching.connect_timeout = 10
    pinned.watching.chunk_size = PAGE_SIZE
    pinned.networking.connect_timeout = 10
    pinned.networking.request_timeout = 30
    pinned.networking.error_backoffs = ERROR_BACKOFFS_S
    pinned.queueing.exit_timeout = 0.5
    pinned.queueing.idle_timeout = 0.5  # it also delays the exit of the process
    pinned.process.ultimate_exiting_timeout = None  # otherwise kopf kills the process
    return pinned
