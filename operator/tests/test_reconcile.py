"""reconcile(): the order of its writes, rejections by the API server and their backoff, a conflict, a deleted job."""

from __future__ import annotations

import copy
import json
from typing import Any

import observed as o
import pytest
from reconcile_loop import (
    CONFIG_MAP,
    EVENTS,
    HEAD_SERVICE,
    KEY,
    PATH,
    PODS,
    PROGRAMS,
    RAY_CLUSTER,
    RAY_CLUSTERS,
    RAY_TOKEN,
    STATUS,
    FakeApi,
    Loop,
)

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_core import names
from rlt_core.children.config_map import compute_hash, digest_data
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_operator.cache.reflector import Reflector
from rlt_operator.conditions import find_condition
from rlt_operator.reconcile import backoff
from rlt_operator.reconcile.orphans import count_orphans
from rlt_operator.verdict import WAITING_INTERVAL_S
from rlt_operator.work_queue import Result


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(FakeApi())
    monkeypatch.setattr("time.monotonic", lambda: loop.seconds)
    return loop


def condition(loop: Loop, type: C) -> tuple[str, str]:
    found = find_condition(loop.api.status, type)
    assert found
    return found.status, found.reason


async def test_children_are_written_before_the_status(loop: Loop) -> None:
    result = await loop.run()
    assert loop.api.writes == [PROGRAMS, CONFIG_MAP, RAY_TOKEN, RAY_CLUSTER, PATH]
    assert result.requeue_after == WAITING_INTERVAL_S


async def test_a_job_waits_for_agent_sandbox_and_creates_nothing_before(loop: Loop) -> None:
    sandbox = {"provider": "AgentSandbox"}
    spec = {**o.SPEC, "rollout": {"multiTurn": {"tools": [{"name": "python"}], "sandbox": sandbox}}}
    loop.api.objects[PATH] |= {**o.manifest(spec), "status": o.job(spec).status.to_json()}
    result = await loop.run()
    assert [each for each in loop.api.writes if not each.startswith(EVENTS)] == [PATH]
    assert condition(loop, C.CLUSTER_READY) == ("False", Reason.AGENT_SANDBOX_MISSING)
    message = loop.api.status.message
    assert message
    assert message.startswith("spec.rollout.multiTurn.sandbox.provider: AgentSandbox needs the CRD sandboxes.agents.x")
    assert message.endswith("Install agent-sandbox (tested with 0.5.6), or create the job with provider: Pods.")
    loop.api.objects[api_paths.AGENT_SANDBOX] = {"kind": "APIResourceList"}
    assert result.requeue_after
    await loop.run_after(result.requeue_after)
    assert RAY_CLUSTER in loop.api.objects


async def test_the_creation_after_an_own_status_write_reads_the_job_and_its_pods(loop: Loop) -> None:
    """Another process may have written the status before: then the RayCluster is read too."""
    await loop.run()
    assert {PATH, RAY_CLUSTER, PODS} <= set(loop.api.reads)
    del loop.api.objects[RAY_CLUSTER]
    loop.api.reads.clear()
    loop.deliver()
    await loop.reconcile()
    assert RAY_CLUSTER in loop.api.objects
    assert {PATH, PODS} <= set(loop.api.reads)
    assert RAY_CLUSTER not in loop.api.reads


async def test_no_cluster_is_created_for_a_deleted_job_that_the_cache_still_has(loop: Loop) -> None:
    """kopf does not report a job that was deleted while its watch was interrupted."""
    await loop.run()
    del loop.api.objects[PATH]
    del loop.api.objects[RAY_CLUSTER]
    loop.cache.ray_clusters.forget(KEY, loop.cache.ray_clusters.version_of(KEY))
    loop.api.writes.clear()
    assert loop.cache.get_job(KEY)
    assert (await loop.reconcile()).gone
    assert loop.api.writes == []


async def test_a_rejection_is_written_to_the_status_with_the_time_of_the_retry(loop: Loop) -> None:
    loop.api.errors[RAY_CLUSTERS] = ApiError(422, "the spec is invalid")
    result = await loop.run()
    assert loop.api.status.message
    assert loop.api.status.message.startswith("the spec is invalid. The operator retries at 20")
    assert condition(loop, C.CLUSTER_READY) == ("False", Reason.CLUSTER_REJECTED)
    assert condition(loop, C.STALLED) == ("True", Reason.CLUSTER_REJECTED)
    assert result == Result(backoff.MIN_DELAY_S)
    assert loop.api.events == {"ClusterRejected": 1}


@pytest.mark.parametrize("status", [0, 429, 500])
async def test_an_error_that_a_retry_may_fix_is_reported_when_it_repeats(loop: Loop, status: int) -> None:
    loop.api.errors[RAY_CLUSTERS] = ApiError(status, 'failed calling webhook "m.kb.io"')
    assert await loop.run() == Result(2)
    assert loop.api.status == o.job().status
    assert await loop.run_after(2) == Result(4)
    assert 'failed calling webhook "m.kb.io"' in (loop.api.status.message or "")
    assert condition(loop, C.CLUSTER_READY) == ("False", Reason.CLUSTER_REJECTED)
    assert find_condition(loop.api.status, C.STALLED) is None


async def test_retries_back_off_however_often_the_job_is_woken(loop: Loop) -> None:
    loop.api.errors[RAY_CLUSTERS] = ApiError(403, "exceeded quota")
    delays = []
    for _ in range(7):
        result = await loop.run()
        writes = len(loop.api.writes)
        delays.append(result.requeue_after)
        assert await loop.run() == result  # the watch event from the operator's status write
        assert len(loop.api.writes) == writes
        loop.seconds += result.requeue_after or 0
    assert delays == [2, 4, 8, 16, 32, 60, 60]
    assert loop.api.events == {"ClusterRejected": 1}
    del loop.api.errors[RAY_CLUSTERS]
    await loop.run()
    assert find_condition(loop.api.status, C.STALLED) is None
    loop.api.errors[RAY_CLUSTERS] = ApiError(403, "exceeded quota")
    del loop.api.objects[RAY_CLUSTER]
    assert await loop.run_after(10) == Result(2), "a success ends the backoff"


async def test_a_change_of_the_job_ends_the_wait(loop: Loop) -> None:
    loop.api.errors[RAY_CLUSTERS] = ApiError(403, "exceeded quota")
    await loop.run()
    del loop.api.errors[RAY_CLUSTERS]
    loop.api.objects[PATH]["metadata"]["resourceVersion"] = "90"
    assert await loop.run() == Result(WAITING_INTERVAL_S)
    assert RAY_CLUSTER in loop.api.writes


async def find_path() -> str:
    return PODS


def forbid_pods(loop: Loop, error: ApiError) -> None:
    """The watch of the pods fails."""
    loop.cache.watches.of_cluster.append(
        Reflector("pods", loop.cache.pods, find_path, lambda name, manifest: None, error=error)
    )


async def test_a_failed_read_is_reported_and_the_other_conditions_remain(loop: Loop) -> None:
    await loop.run()
    before = {each.type: each for each in loop.api.status.conditions}
    forbid_pods(loop, ApiError(403, 'pods is forbidden: User "x" cannot list resource "pods"'))
    assert await loop.run() == Result(2)
    after = {each.type: each for each in loop.api.status.conditions}
    assert (after[C.STALLED].status, after[C.STALLED].reason) == ("True", Reason.REQUEST_FAILED)
    assert 'User "x" cannot list resource "pods". The operator retries at' in after[C.STALLED].message
    changed = {C.STALLED, C.RECONCILING}
    assert {condition_type: each for condition_type, each in after.items() if condition_type not in changed} == {
        condition_type: each for condition_type, each in before.items() if condition_type not in changed
    }
    assert loop.api.events["RequestFailed"] == 1


async def test_a_failed_read_repeats_no_secret_of_the_job(loop: Loop) -> None:
    loop.api.objects[PATH]["spec"]["cluster"]["env"] = [{"name": "DB_PASSWORD", "value": "correct-horse"}]
    forbid_pods(loop, ApiError(403, "denied: correct-horse"))
    await loop.run()
    assert "denied: ***" in (loop.api.status.message or "")
    assert "correct-horse" not in json.dumps([loop.api.objects[PATH]["status"], loop.api.events])


async def test_a_rejected_status_is_reported_in_the_stored_status(loop: Loop) -> None:
    await loop.run()
    stored = loop.api.status
    rejected = [ApiError(400, 'unknown field "status.findings"')] * 3
    patch = loop.api.patch

    async def patch_once_rejected(path: str, operations: list[Manifest]) -> Manifest:
        if rejected and "/status/message" in [each["path"] for each in operations]:
            raise rejected.pop()
        return await patch(path, operations)

    loop.api.patch = patch_once_rejected  # type: ignore[method-assign]
    loop.api.objects.pop(RAY_CLUSTER)
    loop.api.objects[PATH]["metadata"] |= {"annotations": {"rlt.dev/cancel": "true"}, "resourceVersion": "50"}
    await loop.run()
    assert loop.api.status == stored
    await loop.run_after(2)
    assert condition(loop, C.STALLED) == ("True", Reason.REQUEST_FAILED)
    assert 'unknown field "status.findings"' in (loop.api.status.message or "")


async def test_without_any_status_write_the_failure_is_an_event(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.api.errors[STATUS] = ApiError(413, "Request entity too large")
    for _ in range(5):
        await loop.run_after(60)
    assert loop.api.events == {"RequestFailed": 5}
    lines = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert lines == [
        "cannot write the status: Request entity too large",
        "cannot report the failure in the status: Request entity too large",
    ], "each failure is logged once"


async def test_a_conflict_requeues_the_job_at_once(loop: Loop) -> None:
    loop.api.errors[STATUS] = ApiError(409, "the object has been modified")
    assert await loop.run() == Result(requeue_after=0)


async def test_a_deleted_job_leaves_the_queue(loop: Loop) -> None:
    loop.api.objects.clear()
    assert await loop.run() == Result(gone=True)


OWNER = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "name": "sum", "controller": True}


def existing(**metadata: Any) -> Manifest:
    return {"metadata": {"uid": "theirs", "resourceVersion": "5", **metadata}, "data": {"a": "b"}}


@pytest.mark.parametrize(
    "found",
    [
        existing(),
        existing(labels={"rlt.dev/job": "sum", "app.kubernetes.io/managed-by": "rlt-operator"}),
        existing(ownerReferences=[{"kind": "Deployment", "name": "web", "uid": "2", "controller": True}]),
        existing(ownerReferences=[{**OWNER, "uid": o.UID, "controller": False}]),
    ],
)
async def test_an_object_of_a_user_is_not_changed(loop: Loop, found: Manifest) -> None:
    loop.api.objects[CONFIG_MAP] = copy.deepcopy(found)
    await loop.run()
    assert loop.api.objects[CONFIG_MAP] == found
    assert RAY_CLUSTER not in loop.api.objects
    assert condition(loop, C.CLUSTER_READY) == ("False", Reason.NAME_TAKEN)
    assert "ConfigMap sum-training exists and does not belong to this job" in (loop.api.status.message or "")
    assert "Delete it, or create the job with another name. The operator retries at" in (loop.api.status.message or "")


async def test_an_own_object_is_applied_with_its_uid(loop: Loop) -> None:
    loop.api.objects[CONFIG_MAP] = existing(ownerReferences=[{**OWNER, "uid": o.UID}])
    await loop.run()
    assert "training.json" in loop.api.objects[CONFIG_MAP]["data"]
    assert RAY_CLUSTER in loop.api.objects


@pytest.mark.parametrize(
    "found",
    [
        existing(ownerReferences=[{**OWNER, "uid": "of-a-deleted-job"}]),
        existing(ownerReferences=[{**OWNER, "uid": o.UID}], deletionTimestamp="2026-01-02T03:04:05Z"),
    ],
)
async def test_an_object_that_disappears_is_waited_for(loop: Loop, found: Manifest) -> None:
    loop.api.objects[CONFIG_MAP] = found
    await loop.run()
    await loop.run_after(2)
    assert "waiting for ConfigMap sum-training of an earlier run to be deleted" in (loop.api.status.message or "")
    assert find_condition(loop.api.status, C.STALLED) is None
    del loop.api.objects[CONFIG_MAP]
    await loop.run_after(4)
    assert RAY_CLUSTER in loop.api.objects


@pytest.mark.parametrize(
    ("service", "note"),
    [
        ({**existing(), "spec": {"type": "ExternalName"}}, " (it is of type ExternalName)"),
        (existing(labels={"ray.io/cluster": "sum"}), ""),
        (
            existing(ownerReferences=[{"kind": "RayCluster", "name": "other", "uid": "2", "controller": True}]),
            " (it belongs to RayCluster other)",
        ),
    ],
)
async def test_a_head_service_of_a_user_stops_the_creation(loop: Loop, service: Manifest, note: str) -> None:
    loop.api.objects[HEAD_SERVICE] = service
    await loop.run()
    assert RAY_CLUSTER not in loop.api.objects
    assert condition(loop, C.STALLED) == ("True", Reason.NAME_TAKEN)
    assert f"Service sum-head-svc exists and does not belong to this job{note}." in (loop.api.status.message or "")


async def test_events_that_a_crash_lost_are_created_by_the_next_process(loop: Loop) -> None:
    loop.api.objects[PATH]["spec"]["suspend"] = True
    await loop.run()
    written = {path: each for path, each in loop.api.objects.items() if path.startswith(EVENTS)}
    assert loop.api.events == {"Suspended": 1}
    loop.restart()
    await loop.run()
    assert loop.api.events == {"Suspended": 1}, "an event that exists is not counted again"
    for path in written:
        del loop.api.objects[path]
    await loop.run()
    assert loop.api.events == {}, "only the first reconciliation after the start reads old transitions"
    loop.restart()
    await loop.run()
    assert {path for path in loop.api.objects if path.startswith(EVENTS)} == set(written), "the same name"


async def test_the_next_reconciliation_observes_the_writes_before_the_watch_delivers_them(loop: Loop) -> None:
    await loop.run()
    loop.api.writes.clear()
    await loop.reconcile()
    assert {CONFIG_MAP, RAY_CLUSTER}.isdisjoint(loop.api.writes)


async def test_a_config_map_of_another_version_stays_while_the_cache_lacks_it(loop: Loop) -> None:
    """After an upgrade, the watches of the new leader may deliver the RayCluster before the ConfigMap."""
    await loop.run()
    data = {"training.json": "{}"}
    config_map = loop.api.objects[CONFIG_MAP]
    config_map["metadata"]["annotations"][names.HASH_ANNOTATION] = compute_hash(digest_data(data))
    config_map["data"] = data
    loop.restart()
    await loop.run()
    assert loop.api.objects[CONFIG_MAP]["data"] == data
    config_map["data"] = {"training.json": "changed by a user"}
    loop.restart()
    await loop.run()
    assert "changed by a user" not in loop.api.objects[CONFIG_MAP]["data"].values()


async def test_no_cluster_is_created_while_the_api_server_has_pods_that_the_cache_lacks(loop: Loop) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "sum", "uid": "earlier", "controller": True}
    metadata = {"namespace": "demo", "name": "sum-head-a", "uid": "uid-a", "resourceVersion": "6"}
    pod = {"metadata": {**metadata, "labels": {"rlt.dev/job": "sum"}, "ownerReferences": [owner]}}
    loop.api.objects[f"{PODS}/sum-head-a"] = pod
    await loop.run()
    assert RAY_CLUSTER not in loop.api.objects
    assert condition(loop, C.CLUSTER_READY) == ("False", Reason.EARLIER_CLUSTER)


async def test_a_conflict_reads_the_job_from_the_api_server(loop: Loop) -> None:
    loop.deliver()
    loop.api.errors[STATUS] = ApiError(409, "the object has been modified")
    loop.api.objects[PATH]["metadata"] |= {"resourceVersion": "70", "generation": 2}
    assert await loop.reconcile() == Result(requeue_after=0)
    found = loop.cache.get_job(KEY)
    assert found
    assert found["metadata"]["generation"] == 2


async def test_what_a_newer_operator_has_recorded_of_the_attempt_is_kept(loop: Loop) -> None:
    await loop.run()
    loop.api.objects[RAY_CLUSTER]["status"] = {"state": "ready"}
    loop.api.objects[RAY_CLUSTER]["metadata"]["resourceVersion"] = "50"
    await loop.run()
    job = loop.api.objects[PATH]
    job["status"]["currentAttempt"]["savedTime"] = "2026-01-02T03:04:05Z"
    job["metadata"] |= {"generation": job["metadata"]["generation"] + 1, "resourceVersion": "50"}
    await loop.run()
    after = loop.api.objects[PATH]["status"]
    assert after["observedGeneration"] == job["metadata"]["generation"]
    assert after["currentAttempt"]["savedTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("is_orphan", [True, False])
async def test_a_ray_cluster_that_outlives_its_job_is_reported(
    loop: Loop, is_orphan: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await loop.run()
    loop.cache.watches.of_namespaces[None] = []
    cluster = loop.api.objects[RAY_CLUSTER]
    stored = copy.deepcopy(cluster)
    del cluster["metadata"]["ownerReferences"]
    cluster["metadata"]["resourceVersion"] = "50"
    loop.deliver()
    del loop.api.objects[PATH]
    if not is_orphan:  # the cache is behind the API server
        loop.api.objects[RAY_CLUSTER] = stored
    loop.cache.jobs.forget(KEY, loop.cache.jobs.version_of(KEY))
    assert count_orphans(loop.cache) == 1
    assert (await loop.reconcile()).gone
    assert ("kubectl -n demo delete raycluster sum" in caplog.text) == is_orphan
    assert RAY_CLUSTER in loop.api.objects
