"""Watches: an event on a job, its RayCluster or its pods wakes that job, and an event on an RLRuntime wakes all jobs.

The only module that imports kopf. It uses on.event handlers only, because kopf's other handlers add annotations or
finalizers to the objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import kopf

from rlt_api.crd import GROUP, PLURAL, RUNTIME_PLURAL, VERSION
from rlt_core.names import JOB_LABEL
from rlt_operator.work_queue import WorkQueue


async def watch(queue: WorkQueue, *, namespaces: Collection[str], stop: asyncio.Event) -> None:
    """Watch the namespaces, or all of them if the collection is empty, until `stop` is set."""
    await kopf.operator(
        registry=build_registry(queue),
        settings=build_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )


def build_registry(queue: WorkQueue) -> kopf.OperatorRegistry:
    """The event handlers."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def job_changed(namespace: str | None, name: str | None, **_: Any) -> None:
        assert namespace
        assert name
        queue.wake((namespace, name))

    @kopf.on.event("ray.io", "v1", "rayclusters", labels={JOB_LABEL: kopf.PRESENT}, registry=handlers)
    @kopf.on.event("", "v1", "pods", labels={JOB_LABEL: kopf.PRESENT}, registry=handlers)
    async def child_changed(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
        assert namespace
        queue.wake((namespace, labels[JOB_LABEL]))

    @kopf.on.event(GROUP, VERSION, RUNTIME_PLURAL, registry=handlers)
    async def runtime_changed(**_: Any) -> None:
        queue.wake_all()  # RLRuntimes change rarely, and the queue does not know which jobs wait for one

    return handlers


def build_settings() -> kopf.OperatorSettings:
    """kopf's settings, without the features that do more than watch."""
    pinned = kopf.OperatorSettings()
    pinned.peering.standalone = True
    pinned.posting.enabled = False  # `reconcile` creates the events
    pinned.scanning.disabled = True  # needs permissions on CRDs and namespaces
    pinned.watching.server_timeout = 300
    pinned.watching.client_timeout = 330
    pinned.watching.connect_timeout = 10
    pinned.watching.label_selectors["", "v1", "pods"] = JOB_LABEL  # filter in the API server
    pinned.watching.label_selectors["ray.io", "v1", "rayclusters"] = JOB_LABEL
    pinned.networking.connect_timeout = 10
    pinned.networking.request_timeout = 30
    pinned.queueing.exit_timeout = 0.5
    pinned.queueing.idle_timeout = 0.5  # it also delays the exit of the process
    pinned.process.ultimate_exiting_timeout = 10
    return pinned
