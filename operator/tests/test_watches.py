"""Namespaces that are selected come and go, and what the cache keeps of them. kopf is a function of the test."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import cast

import observed as o
import pytest

from rlt_core import names
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_core.shards import Shard, choose_shard
from rlt_operator.cache.cache import MAX_WARNINGS, Cache
from rlt_operator.cache.watches import Selection
from rlt_operator.main import check_access
from rlt_operator.work_queue import Key

LABELS = "rlt.dev/jobs=true"
BY_LABELS = Selection(labels=LABELS)


class Api:
    """An API server with lists that the test changes, and watches that deliver what the test puts into their queues."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Manifest]] = defaultdict(list)
        self.changes: dict[str, asyncio.Queue[tuple[str, Manifest]]] = defaultdict(asyncio.Queue)
        self.forbidden: set[str] = set()
        self.gets: Counter[str] = Counter()
        self.held: dict[str, asyncio.Event] = {}
        """Lists that wait for the event."""
        self.watched: set[str] = set()

    async def get(self, path: str) -> Manifest | None:
        self.gets[path] += 1
        raise UnknownResourceError(404, "Kueue is not installed")

    async def list_pages(self, path: str, **query: str) -> AsyncIterator[tuple[Sequence[Manifest], str]]:
        if path in self.held:
            await self.held[path].wait()
        yield await self.list(path), "10"

    async def list_metadata(self, path: str) -> AsyncIterator[tuple[Sequence[Manifest], str]]:
        async for items, version in self.list_pages(path):
            yield [{"metadata": item["metadata"]} for item in items], version

    async def list(self, path: str, **query: str) -> Sequence[Manifest]:
        if path in self.forbidden:
            raise ApiError(403, f"cannot list {path}")
        return self.objects[path]

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        self.watched.add(path)
        try:
            while True:
                yield await self.changes[path].get()
        finally:
            self.watched.discard(path)


def namespace(name: str, version: int = 1) -> Manifest:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": {"rlt.dev/jobs": "true"}}
    }


def job(name_space: str, name: str = "sum") -> Manifest:
    manifest = o.manifest(name=name)
    return {**manifest, "kind": "RLTrainingJob", "metadata": {**manifest["metadata"], "namespace": name_space}}


class Running:
    """The cache over the API, and the jobs that it wakes."""

    def __init__(self, api: Api, selection: Selection) -> None:
        self.api = api
        self.woken: list[Key] = []
        self.watched: set[str | None] = set()
        """The namespaces whose jobs kopf watches."""
        self.cache = Cache(self.woken.append, self.select)
        self.task = asyncio.create_task(self.cache.watches.run(cast(KubernetesApi, api), selection))

    def select(self, namespace: str | None, wanted: bool) -> None:
        """Watch the jobs of a namespace, as kopf does."""
        if wanted and namespace not in self.watched:
            self.watched.add(namespace)
            for each in self.api.objects[api_paths.jobs(namespace)]:
                asyncio.get_running_loop().call_soon(self.cache.receive_job, None, each)
        elif not wanted:
            self.watched.discard(namespace)

    async def settle(self) -> None:
        """Let all tasks run until they wait for the API."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def running(api: Api) -> AsyncIterator[Running]:
    api.objects[api_paths.NAMESPACES] = [namespace("a")]
    for each in ("a", "b"):
        api.objects[api_paths.jobs(each)] = [job(each)]
    started = Running(api, BY_LABELS)
    await started.settle()
    yield started
    started.task.cancel()
    await asyncio.wait([started.task])


async def test_jobs_of_selected_namespaces_are_woken(running: Running, api: Api) -> None:
    await running.cache.watches.wait()
    assert set(running.woken) == {("a", "sum")}
    assert running.cache.watches.is_complete("a")
    assert not running.cache.watches.is_complete("b")
    assert api_paths.pods("b") not in api.watched


async def test_a_namespace_that_gets_the_label_is_reconciled(running: Running, api: Api) -> None:
    running.woken.clear()
    api.held[api_paths.pods("b")] = asyncio.Event()
    await api.changes[api_paths.NAMESPACES].put(("ADDED", namespace("b", 11)))
    await running.settle()
    assert running.cache.get_job(("b", "sum"))
    assert running.woken == [], "the pods are not known yet"
    api.held[api_paths.pods("b")].set()
    await running.settle()
    assert running.woken == [("b", "sum")]


NAMES = ["default", "team-a", "kube-system", "jobs-1000"]
"""Two namespaces of each of two shards."""


@pytest.mark.parametrize("labels", ["", LABELS])
async def test_a_shard_watches_its_namespaces_only(api: Api, labels: str) -> None:
    shards = [Shard(number, 2) for number in range(2)]
    api.objects[api_paths.NAMESPACES] = [namespace(name) for name in NAMES]
    for name in (*NAMES, "late"):
        api.objects[api_paths.jobs(name)] = [job(name)]
    started = [Running(api, Selection(labels=labels, shard=shard)) for shard in shards]
    try:
        for each in started:
            await each.settle()
            await each.cache.watches.wait()
        found = [{key[0] for key in each.woken} for each in started]
        assert found == [set(filter(shard.has, NAMES)) for shard in shards]
        assert all(found)
        assert [each.watched for each in started] == found
        late = started[choose_shard("late", 2)]
        for _ in started:  # each watches the namespaces
            await api.changes[api_paths.NAMESPACES].put(("ADDED", namespace("late", 11)))
            await late.settle()
        assert [("late", "sum") in each.woken for each in started] == [each is late for each in started]
    finally:
        for each in started:
            each.task.cancel()
        await asyncio.wait([each.task for each in started])


async def test_all_namespaces_share_the_search_for_kueue(api: Api) -> None:
    """Without Kueue it is repeated every five seconds."""
    api.objects[api_paths.NAMESPACES] = [namespace(each) for each in NAMES]
    started = Running(api, BY_LABELS)
    await started.settle()
    await started.cache.watches.wait()
    assert len(started.cache.watches.of_namespaces) == len(NAMES)
    assert api.gets[api_paths.KUEUE] == 1
    started.task.cancel()
    await asyncio.wait([started.task])


async def test_a_shard_of_given_namespaces_needs_no_watch_of_namespaces(api: Api) -> None:
    """If none of them is its own, it watches nothing and does not end."""
    for number in range(2):
        shard = Shard(number, 2)
        own = [each for each in NAMES if shard.has(each)]
        for names_given, expected in ((NAMES, set(own)), ([each for each in NAMES if each not in own], set())):
            started = Running(api, Selection(tuple(names_given), shard=shard))
            await started.settle()
            assert started.watched == expected
            assert not started.task.done()
            assert api_paths.NAMESPACES not in api.watched
            started.task.cancel()
            await asyncio.wait([started.task])


@pytest.mark.parametrize("returns", [False, True])
async def test_a_namespace_that_is_deleted_or_loses_the_label_is_forgotten(
    running: Running, api: Api, returns: bool
) -> None:
    running.woken.clear()
    late = job("a")
    await api.changes[api_paths.NAMESPACES].put(("DELETED", namespace("a", 11)))
    await running.settle()
    assert running.woken == [("a", "sum")], "its reconciliation ends"
    running.cache.put({**late, "metadata": {**late["metadata"], "resourceVersion": "12"}})
    assert running.cache.get_job(("a", "sum")) is None
    running.cache.receive_job("MODIFIED", {**late, "metadata": {**late["metadata"], "resourceVersion": "13"}})
    assert not running.cache.jobs.names()
    assert not [path for path in api.watched if "/namespaces/a/" in path]
    assert running.watched == set()
    assert not running.task.done()
    if returns:
        await api.changes[api_paths.NAMESPACES].put(("ADDED", namespace("a", 13)))
        await running.settle()
        assert running.cache.get_job(("a", "sum"))
        assert running.woken == [("a", "sum")] * 2


async def test_a_namespace_without_a_role_does_not_affect_another_one(api: Api) -> None:
    api.objects[api_paths.jobs("b")] = [job("b")]
    api.forbidden |= {api_paths.jobs("a"), api_paths.pods("a")}
    selection = Selection(("a", "b"))
    await check_access(cast(KubernetesApi, api), selection)
    running = Running(api, selection)
    await running.cache.watches.wait()
    await running.settle()
    assert running.woken == [("b", "sum")]
    running.cache.watches.check("b")
    with pytest.raises(ApiError):
        running.cache.watches.check("a")
    assert running.cache.watches.count_unavailable() == 1
    assert running.watched == {"b"}, "kopf ends when a request is rejected"
    running.task.cancel()
    await asyncio.wait([running.task])


@pytest.mark.parametrize(
    ("selection", "forbidden"), [(Selection(), api_paths.jobs(None)), (BY_LABELS, api_paths.NAMESPACES)]
)
async def test_an_operator_without_its_cluster_role_ends(api: Api, selection: Selection, forbidden: str) -> None:
    api.forbidden.add(forbidden)
    with pytest.raises(ApiError, match="cannot list"):
        await check_access(cast(KubernetesApi, api), selection)


def pod(name: str) -> Manifest:
    metadata = {"namespace": "a", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": {**metadata, "labels": {names.JOB_LABEL: "sum"}}}


def warning(number: int, about: str, kind: str = "Pod") -> Manifest:
    involved = {"kind": kind, "namespace": "a", "name": about, "uid": f"uid-{about}"}
    return {
        "metadata": {"namespace": "a", "name": f"event-{number}", "resourceVersion": str(number)},
        "involvedObject": involved,
        "reason": "FailedScheduling",
        "message": f"message {number}",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }


async def test_warnings_about_foreign_pods_do_not_displace_those_of_jobs() -> None:
    cache = Cache(lambda key: None)
    cache.pods.put(pod("sum-head"))
    cache.warnings.put(warning(1, "sum-head"))
    for number in range(2, 5002):
        cache.warnings.put(warning(number, "foreign"))
        cache.warnings.put(warning(number, "foreign", "RayCluster"))
    assert cache.warnings.count() == 1
    assert [each.message for each in cache.warnings.select("uid-sum-head")] == ["message 1"]
    assert len(cache.early_warnings) <= 100


async def test_a_warning_that_arrives_before_its_pod_is_kept() -> None:
    cache = Cache(lambda key: None)
    cache.warnings.put(warning(1, "sum-head"))
    cache.pods.put(pod("sum-head"))
    cache._wake_of_pod(("a", "sum-head"), pod("sum-head"))
    assert [each.message for each in cache.warnings.select("uid-sum-head")] == ["message 1"]


async def test_the_warnings_of_a_namespace_are_bounded() -> None:
    cache = Cache(lambda key: None)
    cache.pods.put(pod("sum-head"))
    for number in range(1, MAX_WARNINGS + 10):
        cache.warnings.put(warning(number, "sum-head"))
    assert cache.warnings.count() == MAX_WARNINGS


@pytest.mark.parametrize("job_first", [True, False])
async def test_removed_pods_of_a_job_that_is_gone_are_forgotten(running: Running, api: Api, job_first: bool) -> None:
    head = pod("sum-head")
    await api.changes[api_paths.pods("a")].put(("ADDED", head))
    await running.settle()
    deleted: list[Manifest] = [job("a"), head]
    for manifest in deleted if job_first else deleted[::-1]:
        last = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "20"}}
        if manifest is head:
            await api.changes[api_paths.pods("a")].put(("DELETED", last))
        else:
            running.cache.receive_job("DELETED", last)
        await running.settle()
        removed = running.cache.pods.select_removed(("a", "sum"))
        assert bool(removed) == (running.cache.get_job(("a", "sum")) is not None)
