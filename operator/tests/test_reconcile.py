"""reconcile(): the order of its writes, a rejection by the API server, a conflict, and a deleted job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import observed as o
import pytest

from rlt_api.conditions import Reason
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.reconcile.reconcile import reconcile
from rlt_operator.work_queue import Result

KEY = ("demo", "sum")
JOB = {**o.manifest(), "status": o.job().status.to_json()}
STATUS = f"{api_paths.job(*KEY)}/status"
RAY_CLUSTER = api_paths.ray_cluster(*KEY)


@dataclass
class FakeApi:
    """An API server with one job, whose writes can fail."""

    job: Manifest | None
    errors: dict[str, ApiError] = field(default_factory=dict)
    """Error by path."""
    writes: list[tuple[str, Manifest]] = field(default_factory=list)

    async def get(self, path: str) -> Manifest | None:
        return self.job if path == api_paths.job(*KEY) else None

    async def get_large(self, path: str) -> Manifest | None:
        return None

    async def list(self, path: str, **query: str) -> list[Manifest]:
        return []

    async def apply(self, path: str, manifest: Manifest) -> None:
        if path in self.errors:
            raise self.errors[path]
        self.writes.append((path, manifest))

    async def create(self, path: str, manifest: Manifest) -> None:
        self.writes.append((path, manifest))


async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
    raise AssertionError("no head exists")


async def run(api: FakeApi) -> Result:
    return await reconcile(cast(KubernetesApi, api), send, KEY)


async def test_children_are_written_before_the_status_and_its_events() -> None:
    api = FakeApi(JOB)
    result = await run(api)
    assert [path for path, _ in api.writes] == [
        api_paths.config_map("demo", "sum-training"),
        RAY_CLUSTER,
        STATUS,
        api_paths.events("demo"),
    ]
    assert result.requeue_after == 2


async def test_a_rejection_is_written_to_the_status() -> None:
    api = FakeApi(JOB, {RAY_CLUSTER: ApiError(422, "the spec is invalid")})
    await run(api)
    (status,) = [manifest["status"] for path, manifest in api.writes if path == STATUS]
    assert status["message"] == "the spec is invalid"
    assert Reason.CLUSTER_REFUSED in [each["reason"] for each in status["conditions"]]


async def test_a_conflict_requeues_the_job_at_once() -> None:
    assert await run(FakeApi(JOB, {STATUS: ApiError(409, "the object has been modified")})) == Result(requeue_after=0)


@pytest.mark.parametrize("status", [0, 500, 429])
async def test_errors_that_a_retry_may_fix_are_raised(status: int) -> None:
    with pytest.raises(ApiError):
        await run(FakeApi(JOB, {RAY_CLUSTER: ApiError(status, "try again")}))


async def test_a_deleted_job_leaves_the_queue() -> None:
    assert await run(FakeApi(None)) == Result(gone=True)
