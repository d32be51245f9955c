"""kopf's events of jobs from the real API server, and what a list of metadata repairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes

from rlt_core.job import Manifest
from rlt_core.kubernetes import client
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache import job_list
from rlt_operator.cache.job_list import JobList
from rlt_operator.cache.job_store import JobStore
from rlt_operator.cache.store import Name
from rlt_operator.watch import KopfWatch

pytestmark = pytest.mark.apiserver
TIMEOUT_S = 120


class Watching:
    """kopf and the job list of a namespace. With `deaf`, kopf's events are lost, as while its watch is interrupted."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self.woken: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        """Name of each changed job, and whether it still exists."""
        self.deaf = False
        self.kopf = KopfWatch()
        self.store = JobStore()
        self.list = JobList(self.store, self.wake, namespace, self.kopf.select)
        self.tasks = [
            asyncio.create_task(self.list.run(api)),
            asyncio.create_task(self.kopf.run(self.receive, lambda: None)),
        ]

    def wake(self, name: Name, job: Manifest | None) -> None:
        self.woken.put_nowait((name[1], self.store.get(name) is not None))

    def receive(self, change: str | None, job: Manifest) -> None:
        if not self.deaf:
            self.list.receive(change, job)

    async def next(self) -> tuple[str, bool]:
        return await asyncio.wait_for(self.woken.get(), TIMEOUT_S)


@pytest.fixture
async def watching(kubernetes: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watching]:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.cluster.kubeconfig))
    monkeypatch.setattr(job_list, "RECHECK_S", 1.0)
    api, _ = await client.connect_as_user(kubeconfig=str(kubernetes.cluster.kubeconfig), context=None)
    started = Watching(api, namespace)
    yield started
    for task in started.tasks:
        task.cancel()
    await asyncio.wait(started.tasks)
    await api.close()


async def call(function: Any, *arguments: Any) -> None:
    await asyncio.to_thread(function, *arguments)


async def test_an_event_wakes_a_job(kubernetes: Kubernetes, namespace: str, watching: Watching) -> None:
    await asyncio.wait_for(watching.list.synced.wait(), TIMEOUT_S)
    await call(kubernetes.create_job, namespace, o.COMMAND_SPEC)
    assert await watching.next() == ("sum", True)
    await call(kubernetes.suspend, namespace, True)
    assert await watching.next() == ("sum", True)
    job = watching.store.get_manifest((namespace, "sum"))
    assert job
    assert job["spec"]["suspend"] is True
    assert "kopf" not in str(job["metadata"]), "kopf writes no annotation and no finalizer"
    await call(kubernetes.delete, namespace, "rltrainingjob", "sum")
    assert await watching.next() == ("sum", False)


async def test_a_deletion_during_an_interrupted_watch_is_repaired(
    kubernetes: Kubernetes, namespace: str, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list, "INTERVAL_S", 1.0)
    await call(kubernetes.create_job, namespace, o.COMMAND_SPEC)
    assert await watching.next() == ("sum", True)
    watching.deaf = True
    await call(kubernetes.delete, namespace, "rltrainingjob", "sum")
    assert await watching.next() == ("sum", False)


async def test_kopf_watches_namespaces_that_come_and_go(
    kubernetes: Kubernetes, namespace: str, watching: Watching
) -> None:
    other = f"{namespace}-other"
    await call(kubernetes.create_namespace, other)
    await asyncio.wait_for(watching.list.synced.wait(), TIMEOUT_S)
    await call(kubernetes.create_job, namespace, o.COMMAND_SPEC)
    assert await watching.next() == ("sum", True)
    watching.kopf.select(other, True)
    await call(kubernetes.create_job, other, o.COMMAND_SPEC)
    assert await watching.next() == ("sum", True)
    assert watching.store.get((other, "sum"))
    watching.kopf.select(namespace, False)
    await call(kubernetes.delete, other, "rltrainingjob", "sum")
    assert await watching.next() == ("sum", False)
    await call(kubernetes.kubectl, "delete", "namespace", other, "--wait=false")
