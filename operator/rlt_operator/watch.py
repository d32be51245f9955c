"""kopf's part: an event on an RLRuntime wakes all jobs, because any of them may wait for it.

The only module that imports kopf. Objects that reconciliations read often are in `rlt_operator.cache`: kopf does not
report objects that were deleted while its watch was interrupted (ADR 14).
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

import kopf

from rlt_api.schema.crd import GROUP, RUNTIME_PLURAL, VERSION


async def watch(wake_all: Callable[[], object]) -> None:
    """Watch RLRuntimes, which are cluster-scoped, until this task is cancelled.

    kopf has its own thread and event loop: it replaces the signal handlers of the main thread, and at its end
    it cancels all tasks of its loop.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def run() -> None:
        kopf.run(
            registry=build_registry(lambda: loop.call_soon_threadsafe(wake_all)),
            settings=build_settings(),
            standalone=True,
            clusterwide=True,
            stop_flag=stop,
        )

    running = loop.run_in_executor(None, run)
    try:
        await asyncio.shield(running)
    finally:
        stop.set()
        await asyncio.wait([running])


def build_registry(wake_all: Callable[[], object]) -> kopf.OperatorRegistry:
    """The event handlers. `wake_all` is called in kopf's thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        in_cluster = kopf.login_with_service_account(**arguments)
        return use_service_address(in_cluster) if in_cluster else kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(GROUP, VERSION, RUNTIME_PLURAL, registry=handlers)
    async def runtime_changed(**_: Any) -> None:
        wake_all()  # RLRuntimes change rarely, and the queue does not know which jobs wait for one

    return handlers


def use_service_address(connection: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """The connection to the address in the pod's environment, as every other client uses. kopf's name needs a DNS."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return connection
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(connection, server=f"https://{address}:{port}")


def build_settings() -> kopf.OperatorSettings:
    """kopf's settings, without the features that do more than watch."""
    pinned = kopf.OperatorSettings()
    pinned.peering.standalone = True
    pinned.posting.enabled = False  # `reconcile` creates the events
    pinned.scanning.disabled = True  # needs permissions on CRDs and namespaces
    pinned.watching.server_timeout = 300
    pinned.watching.client_timeout = 330
    pinned.watching.connect_timeout = 10
    pinned.networking.connect_timeout = 10
    pinned.networking.request_timeout = 30
    pinned.queueing.exit_timeout = 0.5
    pinned.queueing.idle_timeout = 0.5  # it also delays the exit of the process
    pinned.process.ultimate_exiting_timeout = None  # otherwise kopf kills the process
    return pinned
