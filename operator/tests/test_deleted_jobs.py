"""The usage of a deleted job is recorded once, also if the API server fails or another replica takes over."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from rlt_api.status.job_status import Usage, UsageParts
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.usage_record import name_record, parse_record
from rlt_operator import deleted_jobs
from rlt_operator.cache.job_store import MAX_JOB_CHARACTERS, JobStore
from rlt_operator.deleted_jobs import MAX_NOTED, DeletedJobs
from rlt_operator.memory.usage import end_usage

OPERATOR = "rlt-system"
NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@dataclass
class Api:
    """An API server with ConfigMaps by path."""

    stored: dict[str, Manifest] = field(default_factory=dict)
    error: ApiError | None = None
    """Raised by each write."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0

    async def get(self, path: str) -> Manifest | None:
        return copy.deepcopy(self.stored.get(path))

    async def apply(self, path: str, manifest: Manifest) -> Manifest:
        self.written.set()
        if self.error:
            raise self.error
        known = self.stored.get(path)
        if (known or {"metadata": {}})["metadata"].get("resourceVersion") != manifest["metadata"].get(
            "resourceVersion"
        ):
            raise ApiError(409, "the object has been modified")
        self.writes += 1
        self.stored[path] = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.writes)}}
        return manifest

    def list_recorded(self, namespace: str = "a") -> dict[str, int]:
        """The accelerator seconds of the recorded jobs by uid."""
        record = self.stored.get(api_paths.config_map(OPERATOR, name_record(namespace)))
        return {each["metadata"]["uid"]: each["status"]["usage"]["acceleratorSeconds"] for each in parse_record(record)}


def job(uid: str, seconds: int = 900, *, namespace: str = "a", name: str = "sum", version: int = 5) -> Manifest:
    metadata = {"namespace": namespace, "name": name, "uid": uid, "generation": 1, "resourceVersion": str(version)}
    usage = {
        "acceleratorSeconds": seconds,
        "by": {"update": seconds},
        "days": [{"day": "2026-01-02", "by": {"update": seconds}}],
        "observedTime": "2026-01-02T03:00:00Z",
        "accelerators": 0,
    }
    return {"kind": "RLTrainingJob", "metadata": metadata, "spec": {}, "status": {"usage": usage} if seconds else {}}


async def flush(deleted: DeletedJobs, api: Api) -> bool:
    return await deleted.flush(cast(KubernetesApi, api))


async def test_deleted_jobs_are_added_to_the_record_of_their_namespace() -> None:
    api = Api()
    deleted = DeletedJobs(OPERATOR)
    deleted.note(job("1"))
    deleted.note(job("2", namespace="b"))
    deleted.note(job("unused", seconds=0))
    assert await flush(deleted, api)
    deleted.note(job("3", 100))
    assert await flush(deleted, api)
    assert api.list_recorded() == {"1": 900, "3": 100}
    assert api.list_recorded("b") == {"2": 900}
    assert await flush(deleted, api)
    assert api.writes == 3, "nothing was deleted since"


async def test_a_replica_that_takes_over_counts_no_job_twice() -> None:
    api = Api()
    leader = DeletedJobs(OPERATOR)
    standby = DeletedJobs(OPERATOR)
    for each in (leader, standby):
        each.note(job("1"))
    await flush(leader, api)
    standby.note(job("2"))
    await flush(standby, api)
    assert api.list_recorded() == {"1": 900, "2": 900}


async def test_a_failed_write_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_jobs, "BATCH_S", 0)
    monkeypatch.setattr(deleted_jobs, "RETRY_S", 0)
    api = Api(error=ApiError(500, "etcd is unavailable"))
    deleted = DeletedJobs(OPERATOR)
    task = asyncio.create_task(deleted.record(cast(KubernetesApi, api)))
    deleted.note(job("1"))
    await asyncio.wait_for(api.written.wait(), 30)
    assert api.list_recorded() == {}
    api.error = None
    api.written.clear()
    await asyncio.wait_for(api.written.wait(), 30)
    deleted.note(job("2"))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert api.list_recorded() == {"1": 900, "2": 900}, "the end writes what is noted"


async def test_a_damaged_record_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    path = api_paths.config_map(OPERATOR, name_record("a"))
    damaged = {"metadata": {"namespace": OPERATOR, "name": name_record("a"), "resourceVersion": "1"}, "binaryData": {}}
    api = Api({path: damaged})
    deleted = DeletedJobs(OPERATOR)
    deleted.note(job("1"))
    assert not await flush(deleted, api)
    assert api.stored == {path: damaged}
    assert "restore or delete it" in caplog.text
    del api.stored[path]
    assert await flush(deleted, api)
    assert api.list_recorded() == {"1": 900}


async def test_what_is_noted_is_bounded_and_nothing_is_without_a_place_for_it() -> None:
    api = Api()
    deleted = DeletedJobs(OPERATOR)
    for number in range(MAX_NOTED + 1):
        deleted.note(job(str(number)))
    await flush(deleted, api)
    assert api.list_recorded().keys() == {str(number) for number in range(1, MAX_NOTED + 1)}
    nowhere = DeletedJobs(None)
    nowhere.note(job("1"))
    assert await flush(nowhere, Api())


def test_a_running_job_counts_until_its_deletion_and_loses_what_it_has_not_saved() -> None:
    usage = Usage.model_validate(
        {
            "accelerator_seconds": 800,
            "by": {"starting": 80, "update": 720},
            "days": [{"day": "2026-01-02", "by": {"starting": 80, "update": 720}}],
            "observed_time": "2026-01-02T03:00:00Z",
            "accelerators": 8,
            "state": "running",
            "run": {"start_time": "2026-01-02T02:58:30Z", "at_risk": 240, "by": {"update": 720}},
        }
    )
    ended = end_usage(usage, NOW + timedelta(seconds=10))
    assert ended.by.model_dump(exclude_defaults=True) == {"starting": 80, "update": 480, "lost": 320}
    assert ended.accelerator_seconds == 880 == sum(ended.days[0].by.model_dump().values())
    assert end_usage(ended, NOW + timedelta(days=1)).accelerator_seconds == 880 + 8 * (86400 - 10)


@pytest.mark.parametrize("state", ["queued", "starting", "idle"])
def test_a_job_without_a_program_counts_in_its_state(state: Any) -> None:
    time = "2026-01-02T03:00:00Z"
    usage = Usage(accelerator_seconds=0, by=UsageParts(), observed_time=time, accelerators=2, state=state)
    assert end_usage(usage, NOW + timedelta(seconds=5)).by.model_dump(exclude_defaults=True) == {state: 10}


def test_the_store_reports_each_job_that_no_longer_exists() -> None:
    removed: list[tuple[str, int]] = []
    store = JobStore()
    store.on_removed = lambda each: removed.append((each["metadata"]["uid"], len(str(each.get("status", "")))))
    status = len(str(job("1")["status"]))
    store.put(job("1"))
    store.put(job("1", version=6))
    assert removed == []
    store.put(job("2", version=7))
    assert removed == [("1", status)], "kopf has missed the deletion of the first one"
    store.put(job("1", version=6))
    store.remove(job("2", version=8))
    assert removed[1:] == [("2", status)] * 2
    store.put(job("3", version=9))
    store.retain([], 10, None)
    assert removed[3:] == [("3", status)]
    large = job("4", version=11)
    store.put({**large, "spec": {"text": "x" * MAX_JOB_CHARACTERS}})
    store.remove(large)
    assert removed[-1] == ("4", status), "with its status, which the store does not have"
    store.remove(job("unseen", version=12))
    assert removed.pop() == ("unseen", status), "its creation was not reported"
    store.put(job("5", version=12))
    store.forget_namespace("a")
    assert removed[-1][0] == "4", "the job still exists: its namespace was unselected"
