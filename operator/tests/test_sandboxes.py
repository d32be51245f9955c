"""The pool of sandbox pods: when it is created."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import observed as o
import pytest

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.reconcile.children import NameTakenError, check_owner, write_child
from rlt_operator.reconcile.plan import plan

SPEC = {**o.SPEC, "rollout": {"multiTurn": {"tools": [{"name": "python"}], "sandbox": {}}}}
READY = o.recorded(replace(o.READY, job=o.decided(o.job(SPEC))))


def find_pools(applied: tuple[Manifest, ...]) -> list[Manifest]:
    return [manifest for manifest in applied if manifest["kind"] == "Job"]


def test_the_pool_is_created_with_the_submission() -> None:
    planned = plan(READY, o.NOW)
    (pool,) = find_pools(planned.apply)
    assert planned.submit
    assert READY.head
    assert pool["metadata"]["ownerReferences"][0]["uid"] == READY.head.uid


def test_agent_sandbox_gets_a_sandbox_for_each_pod() -> None:
    sandbox = {"provider": "AgentSandbox", "poolSize": 2}
    rollout = {"multiTurn": {"tools": [{"name": "python"}], "sandbox": sandbox}}
    job = o.decided(o.job({**SPEC, "rollout": rollout}))
    planned = plan(o.recorded(replace(o.READY, job=job)), o.NOW)
    assert find_pools(planned.apply) == []
    assert [each["kind"] for each in planned.apply].count("Sandbox") == 2


def test_a_running_program_keeps_its_pool() -> None:
    assert find_pools(plan(replace(READY, ray=o.running()), o.NOW).apply) == []


def test_a_job_without_sandboxes_gets_no_pool() -> None:
    assert find_pools(plan(o.recorded(o.READY), o.NOW).apply) == []


@dataclass
class Api:
    """An API server that has one object."""

    existing: Manifest

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        raise ApiError(409, "exists")

    async def get(self, path: str) -> Manifest:
        return self.existing


async def test_a_repeated_submission_finds_the_pool() -> None:
    (pool,) = find_pools(plan(READY, o.NOW).apply)
    assert await write_child(cast(KubernetesApi, Api(pool)), READY.job, pool) is pool


def test_a_pool_of_another_owner_is_not_used() -> None:
    (pool,) = find_pools(plan(READY, o.NOW).apply)
    foreign = {**pool, "metadata": {**pool["metadata"], "ownerReferences": []}}
    with pytest.raises(NameTakenError, match="Job sum-sandboxes-uid-sum- exists"):
        check_owner(READY.job, pool, foreign)
