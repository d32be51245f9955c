"""Watching: every event on a job, its RayCluster or its pods says "look at this job again", and a runtime's at all.

The only module that imports kopf. Only on.event handlers are used: kopf's others keep annotations on the objects or put
finalizers there.
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
    """Watch until `stop` is set: the given namespaces, or all if there are none."""
    await kopf.operator(
        registry=registry(queue),
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )


def registry(queue: WorkQueue) -> kopf.OperatorRegistry:
    """The handlers."""
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
        queue.wake_all()  # runtimes change seldom, and which jobs wait for one is not remembered

    return handlers


def settings() -> kopf.OperatorSettings:
    """kopf's settings, pinned where its defaults would do more than watch."""
    pinned = kopf.OperatorSettings()
    pinned.peering.standalone = True
    pinned.posting.enabled = False  # events are the conditions' transitions, and `apply` tells them
    pinned.scanning.disabled = True  # no rights on CRDs and namespaces are needed
    pinned.watching.server_timeout = 300
    pinned.watching.client_timeout = 330
    pinned.watching.connect_timeout = 10
    pinned.watching.label_selectors["", "v1", "pods"] = JOB_LABEL  # the API server filters, not this process
    pinned.watching.label_selectors["ray.io", "v1", "rayclusters"] = JOB_LABEL
    pinned.networking.connect_timeout = 10
    pinned.networking.request_timeout = 30
    pinned.queueing.exit_timeout = 0.5
    pinned.queueing.idle_timeout = 0.5  # it also delays the end of the process
    pinned.process.ultimate_exiting_timeout = 10
    return pinned
