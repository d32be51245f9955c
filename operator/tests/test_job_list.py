"""Jobs that kopf reports, and what a list of metadata adds: deletions, and the end of kopf's first list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import observed as o
import pytest

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_operator.cache import job_list
from rlt_operator.cache.job_list import JobList
from rlt_operator.cache.job_store import JobStore
from rlt_operator.cache.store import Name


def job(name: str, version: int = 1) -> Manifest:
    manifest = o.manifest(name=name)
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(version)}}


class Server:
    """The jobs of the API server, and the job list that reads them."""

    def __init__(self, *jobs: Manifest) -> None:
        self.jobs = {each["metadata"]["name"]: each for each in jobs}
        self.version = 10
        self.error: ApiError | None = None
        self.lists = 0
        self.full_lists = 0
        self.failing_lists: set[int] = set()
        self.listed = asyncio.Event()
        self.woken: list[Name] = []
        self.selected: list[bool] = []
        self.store = JobStore()
        self.list = JobList(
            self.store, lambda name, job: self.woken.append(name), None, lambda _, wanted: self.selected.append(wanted)
        )
        self.task = asyncio.create_task(self.list.run(cast(KubernetesApi, self)))

    async def list_metadata(self, path: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        self.lists += 1
        if self.error:
            raise self.error
        yield [{"metadata": each["metadata"]} for each in self.jobs.values()], str(self.version)

    async def list_pages(self, path: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        self.full_lists += 1
        if self.full_lists in self.failing_lists:
            raise ApiError(503, "overloaded")
        yield list(self.jobs.values()), str(self.version)

    async def get(self, path: str) -> Manifest | None:
        return next((each for name, each in self.jobs.items() if path == api_paths.job("demo", name)), None)

    async def settle(self, until: int) -> None:
        """Wait until the jobs were listed this number of times."""
        async with asyncio.timeout(60):
            while self.lists < until:
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for interval in ("RECHECK_S", "RELIST_DELAY_S", "LATE_S"):
        monkeypatch.setattr(job_list, interval, 0.0)


async def test_the_jobs_are_complete_when_kopf_has_reported_each_listed_job() -> None:
    server = Server(job("a"), job("b"))
    await server.settle(1)
    assert server.selected == [True]
    server.list.receive(None, job("a"))
    assert not server.list.synced.is_set()
    server.list.receive(None, job("b"))
    assert server.list.synced.is_set()
    assert server.woken == [("demo", "a"), ("demo", "b")]
    await server.end()
    assert server.selected == [True, False], "kopf leaves the namespace"


async def test_jobs_are_complete_without_any() -> None:
    server = Server()
    await server.settle(1)
    assert server.list.synced.is_set()
    await server.end()


async def test_each_event_wakes_the_job_once() -> None:
    server = Server()
    await server.settle(1)
    for change, version in (("ADDED", 11), ("MODIFIED", 12), ("MODIFIED", 12), ("DELETED", 13), ("MODIFIED", 12)):
        server.list.receive(change, {**job("a", version), "spec": {"version": version}})
    assert server.woken == [("demo", "a")] * 4, "of an older version, only the one after the deletion"
    await server.end()


async def test_the_response_to_a_write_does_not_restore_a_deleted_job() -> None:
    server = Server()
    await server.settle(1)
    server.list.receive("ADDED", job("a", 11))
    server.list.receive("DELETED", job("a", 13))
    server.store.put_response(job("a", 12))
    assert server.store.names() == []
    await server.end()


@pytest.mark.usefixtures("fast")
async def test_a_deletion_during_an_interrupted_watch_is_found_when_kopf_lists_the_jobs_again() -> None:
    server = Server(job("a"), job("b"))
    await server.settle(1)
    for name in ("a", "b"):
        server.list.receive(None, job(name))
    server.woken.clear()
    del server.jobs["a"]
    server.list.receive(None, job("b"))
    await server.settle(server.lists + 1)
    assert server.woken == [("demo", "a")]
    assert server.store.names() == [("demo", "b")]
    await server.end()


@pytest.mark.usefixtures("fast")
async def test_the_list_keeps_a_job_that_is_newer_than_it() -> None:
    server = Server(job("a"))
    await server.settle(1)
    server.list.receive(None, job("a"))
    server.list.receive("ADDED", job("b", 11))
    server.list.receive(None, job("a"))
    await server.settle(server.lists + 1)
    assert server.store.names() == [("demo", "a"), ("demo", "b")]
    await server.end()


@pytest.mark.usefixtures("fast")
async def test_a_job_that_kopf_does_not_report_is_read() -> None:
    server = Server(job("a"))
    async with asyncio.timeout(60):
        await server.list.synced.wait()
    assert server.woken == [("demo", "a")]
    assert server.store.get_manifest(("demo", "a")) == job("a")
    await server.end()


@pytest.mark.usefixtures("fast")
async def test_a_new_schema_replaces_jobs_of_the_same_version_and_wakes_all() -> None:
    """The store has the new form of job b already."""
    server = Server(job("a"), job("b"))
    await server.settle(1)
    for name in ("a", "b"):
        server.list.receive(None, job(name))
    server.woken.clear()
    server.jobs["a"]["spec"] = {"without": "the removed field"}
    server.failing_lists = {1}
    server.list.read_again()
    await server.settle(server.lists + 1)
    assert server.full_lists == 2, "once more after the error, then no more"
    assert server.woken == [("demo", "a"), ("demo", "b")]
    assert server.store.get_manifest(("demo", "a")) == server.jobs["a"]
    await server.end()


async def test_kopf_leaves_a_namespace_that_it_may_not_read() -> None:
    server = Server()
    server.error = ApiError(403, "forbidden")
    await server.settle(1)
    assert True not in server.selected
    assert server.list.error is server.error
    assert server.list.synced.is_set(), "the reconciliations report it"
    await server.end()


async def test_the_jobs_are_forgotten_with_their_crd() -> None:
    server = Server()
    server.store.put(job("a"))
    server.error = UnknownResourceError(404, "no such page")
    await server.settle(1)
    assert server.woken == [("demo", "a")]
    assert not server.store.served
    assert True not in server.selected
    await server.end()
