"""The sandbox pods of a job: their numbers in the status, why none is free, and what deletes those that have ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import observed as o
import pytest

from rlt_api.status.job_status import SandboxStatus
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.cache.cache import Cache
from rlt_operator.diagnosis.sandboxes import track_pool, update_pool, update_sandboxes
from rlt_operator.observation import Observed, SandboxPool, SandboxProblem, WarningEvent
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.sandbox_pools import delete_released, process_sandbox_pools
from rlt_operator.work_queue import Key

SPEC = {**o.SPEC, "rollout": {"multiTurn": {"tools": [{"name": "python"}], "sandbox": {}}}}
NAME = "sum-sandboxes-uid-sum-"
POOL = SandboxPool(NAME)
REJECTED = WarningEvent("uid-pool", "FailedCreate", 'pods "x" is forbidden: exceeded quota: small')
NOT_FOUND = SandboxProblem("SandboxImageNotPulled", "ErrImagePull: not found", "a")


def build_pool(*, active: int = 8, ready: int = 0) -> Manifest:
    return {"metadata": {"uid": "uid-pool"}, "spec": {"parallelism": 8}, "status": {"active": active, "ready": ready}}


def build_sandbox(message: str) -> Manifest:
    """A Sandbox whose pod agent-sandbox could not create."""
    ready = {"type": "Ready", "status": "False", "reason": "ReconcilerError", "message": message}
    return {"metadata": {"name": "x"}, "status": {"conditions": [ready]}}


def build_pod(phase: str, name: str = "a", conditions: Any = (), **state: Any) -> Manifest:
    containers = [{"name": "sandbox", "state": state}] if state else []
    status = {"phase": phase, "conditions": list(conditions), "containerStatuses": containers}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def waiting(reason: str, message: str = "not found") -> Manifest:
    return build_pod("Pending", waiting={"reason": reason, "message": message})


def failed(exit_code: int, reason: str = "Error", message: str = "") -> Manifest:
    return build_pod("Failed", terminated={"reason": reason, "exitCode": exit_code, "message": message})


READY = build_pod("Running", conditions=[{"type": "Ready", "status": "True"}])
UNSCHEDULABLE = build_pod(
    "Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]
)


def test_claimed_pods_are_active_and_neither_ready_nor_pending() -> None:
    pods = [waiting("ContainerCreating"), build_pod("Pending", "b"), failed(1)]
    assert update_pool(POOL, build_pool(active=8, ready=3), pods, []) == SandboxPool(NAME, ready=3, claimed=3)


def test_the_pods_of_sandboxes_are_counted() -> None:
    pool = replace(POOL, sandboxes=5)
    deleted = {**READY, "metadata": {**READY["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    pods = [READY, build_pod("Running"), waiting("ContainerCreating"), failed(1), build_pod("Succeeded"), deleted]
    assert update_sandboxes(pool, pods, None) == replace(pool, ready=1, claimed=1)


def test_a_sandbox_without_a_pod_shows_why() -> None:
    quota = "Error seen: pods is forbidden: exceeded quota: small"
    found = update_sandboxes(POOL, [], build_sandbox(quota))
    assert found.problem == SandboxProblem("SandboxPodsNotCreated", quota)
    assert update_sandboxes(POOL, [READY], build_sandbox(quota)).problem is None
    starting: Manifest = {"status": {"conditions": [{"type": "Ready", "reason": "Starting"}]}}
    new: Manifest = {"metadata": {}}
    for created in (None, new, starting):
        assert update_sandboxes(POOL, [], created).problem is None


@pytest.mark.parametrize("pod", [waiting("ErrImagePull"), UNSCHEDULABLE, failed(1)])
def test_the_pods_of_sandboxes_show_the_same_problems(pod: Manifest) -> None:
    problem = update_sandboxes(POOL, [pod], None).problem
    assert problem
    assert problem == update_pool(POOL, build_pool(active=pod["status"]["phase"] == "Pending"), [pod], []).problem


def test_a_pool_without_a_status_has_no_pods() -> None:
    assert update_pool(SandboxPool(NAME, 3, 4), {**build_pool(), "status": {}}, [], []) == POOL


@pytest.mark.parametrize(
    ("active", "pods", "warnings", "code", "evidence"),
    [
        (8, [waiting("ErrImagePull")], [], "SandboxImageNotPulled", "ErrImagePull: not found"),
        (
            8,
            [waiting("CreateContainerError", "no such device")],
            [],
            "SandboxPodsFail",
            "CreateContainerError: no such",
        ),
        (8, [UNSCHEDULABLE], [], "SandboxPodsUnschedulable", "0/3 nodes are available"),
        (2, [], [REJECTED], "SandboxPodsNotCreated", "exceeded quota: small"),
        (
            0,
            [failed(128, "StartError", "exec: python3: not found")],
            [],
            "SandboxPodsFail",
            "StartError, exit code 128: ",
        ),
        (0, [failed(1)], [], "SandboxPodsFail", "Error, exit code 1"),
    ],
)
def test_a_pool_without_a_free_pod_has_a_finding(
    active: int, pods: list[Manifest], warnings: list[WarningEvent], code: str, evidence: str
) -> None:
    pool = update_pool(POOL, build_pool(active=active), pods, warnings)
    planned = plan(replace(running(), sandboxes=pool), o.NOW)
    assert planned.status
    (finding,) = planned.status.findings
    assert (finding.code, finding.severity) == (code, "warning")
    assert evidence in finding.evidence
    assert "spec.rollout.multiTurn.sandbox" in finding.remedy


@pytest.mark.parametrize(
    ("job", "pods", "warnings"),
    [
        (build_pool(active=8, ready=1), [waiting("ErrImagePull")], []),
        (build_pool(active=8), [waiting("ContainerCreating")], []),
        (build_pool(active=8), [], [REJECTED]),
        (build_pool(active=2), [], [replace(REJECTED, reason="BackoffLimitExceeded")]),
        (build_pool(active=0), [failed(137, "OOMKilled"), failed(0, "Completed")], []),
        (build_pool(active=8), [failed(1)], []),
    ],
    ids=["a free pod", "starting", "an old event", "another event", "killed and released", "claimed"],
)
def test_a_pool_that_works_has_no_finding(job: Manifest, pods: list[Manifest], warnings: list[WarningEvent]) -> None:
    assert update_pool(POOL, job, pods, warnings).problem is None


def test_a_problem_keeps_its_first_message_until_a_pod_is_free() -> None:
    first = update_pool(POOL, build_pool(), [waiting("ErrImagePull")], [])
    assert first.problem == NOT_FOUND
    second = update_pool(first, build_pool(), [waiting("ImagePullBackOff", "Back-off")], [])
    assert second == first
    other = update_pool(second, build_pool(), [UNSCHEDULABLE], [])
    assert other.problem
    assert other.problem.code == "SandboxPodsUnschedulable"
    assert update_pool(other, build_pool(ready=1), [UNSCHEDULABLE], []).problem is None


def running(**changes: Any) -> Observed:
    """A running job with sandboxes, after the write of its status."""
    ready = o.recorded(replace(o.READY, job=o.job(SPEC)))
    return o.after(replace(ready, ray=o.running(), **changes))


def test_the_status_has_the_pods_and_the_claims_of_the_last_report() -> None:
    observed = running(sandboxes=SandboxPool(NAME, ready=3, claimed=5))
    assert observed.job.status.sandboxes == SandboxStatus(ready=3, claimed=5)
    claims = {"failed": 2, "claim_seconds_p50": 0.123456, "claim_seconds_p99": 4.0}
    ray = replace(o.running(), progress=o.report(91, sandboxes=claims))
    observed = o.after(replace(observed, ray=ray, sandboxes=SandboxPool(NAME, ready=1, claimed=7)))
    expected = SandboxStatus(ready=1, claimed=7, failed=2, claim_seconds_p50=0.1235, claim_seconds_p99=4.0)
    assert observed.job.status.sandboxes == expected
    assert o.after(replace(observed, sandboxes=None)).job.status.sandboxes is None


def test_a_report_of_claims_without_a_pool_is_ignored() -> None:
    ray = replace(o.running(), progress=o.report(91, sandboxes={"failed": 2}))
    assert o.after(replace(o.STARTED, ray=ray)).job.status.sandboxes is None


def test_a_pool_belongs_to_a_head_and_its_numbers_outlive_the_operator() -> None:
    observed = running(sandboxes=SandboxPool(NAME, ready=3, claimed=5))
    assert observed.head
    name = f"sum-sandboxes-{observed.head.uid[:8]}"
    after_start = track_pool(None, observed)
    assert after_start == SandboxPool(name, ready=3, claimed=5)
    found = SandboxPool(name, ready=1, claimed=7, problem=NOT_FOUND)
    assert track_pool(found, observed) is found
    assert track_pool(replace(found, name="sum-sandboxes-earlier"), observed) == after_start
    assert track_pool(found, replace(observed, pods=())).name is None


def test_the_metrics_have_the_pods_by_state() -> None:
    observed = running(sandboxes=SandboxPool(NAME, ready=1, claimed=5))
    metrics.JOBS.record(observed.job, observed.job.status)
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("rlt_job_sandboxes{")]
    metrics.JOBS.forget("demo", "sum")
    states = {line.partition('state="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert states == {"ready": 1, "claimed": 5, "missing": 2}


@dataclass
class Api:
    """An API server that has the same pool in each namespace but `broken`."""

    job: Manifest | None
    pods: list[Manifest] = field(default_factory=list)
    broken: str = ""
    read: list[str] = field(default_factory=list)
    deleted: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    selected: list[dict[str, str]] = field(default_factory=list)
    """Queries for pods."""

    async def get(self, path: str) -> Manifest | None:
        if self.broken and self.broken in path:
            raise ApiError(500, "try again")
        self.read.append(path)
        return self.job

    async def list(self, path: str, **query: str) -> list[Manifest]:
        self.selected.append(query)
        return self.pods

    async def delete_selected(self, path: str, **query: str) -> None:
        if self.broken and self.broken in path:
            raise ApiError(500, "try again")
        self.deleted.append((path, query))


async def process(api: Api, cache: Cache) -> None:
    await process_sandbox_pools(cast(KubernetesApi, api), cache)


async def test_ended_pods_are_deleted_also_after_an_error() -> None:
    cache = Cache(lambda key: None)
    cache.sandboxes |= {
        ("a", "one"): SandboxPool("x"),
        ("b", "two"): SandboxPool("y"),
        ("c", "three"): SandboxPool(None),
    }
    api = Api(build_pool(), broken="namespaces/a/")
    await process(api, cache)
    ended = "status.phase!=Pending,status.phase!=Running"
    assert api.read == ["/apis/batch/v1/namespaces/b/jobs/y"]
    not_running = "status.phase!=Running,status.phase!=Succeeded"
    assert api.selected == [{"labelSelector": "rlt.dev/sandbox-of=two", "fieldSelector": not_running}]
    assert api.deleted == [
        ("/api/v1/namespaces/b/pods", {"labelSelector": "rlt.dev/sandbox-of=two", "fieldSelector": ended}),
        ("/api/v1/namespaces/c/pods", {"labelSelector": "rlt.dev/sandbox-of=three", "fieldSelector": ended}),
    ]


async def test_a_pool_that_has_changed_wakes_its_job_once() -> None:
    woken: list[Key] = []
    cache = Cache(woken.append)
    key = ("demo", "sum")
    cache.sandboxes[key] = POOL
    api = Api(build_pool(ready=8))
    await process(api, cache)
    await process(api, cache)
    assert woken == [key]
    assert cache.sandboxes[key] == SandboxPool(NAME, ready=8)
    api.job = None
    await process(api, cache)
    assert (woken, cache.sandboxes[key]) == ([key, key], POOL)


async def test_the_first_sandbox_without_a_pod_is_read() -> None:
    """A pod of an earlier head is not counted."""
    cache = Cache(lambda key: None)
    pool = SandboxPool("x", sandboxes=3)
    cache.sandboxes["a", "one"] = pool
    pods = [build_pod("Running", name) for name in ("x-0", "x-2", "earlier-1")]
    api = Api(build_sandbox("Error seen: no"), pods)
    await process(api, cache)
    assert api.read == ["/apis/agents.x-k8s.io/v1beta1/namespaces/a/sandboxes/x-1"]
    assert api.selected == [{"labelSelector": "rlt.dev/sandbox-of=one"}]
    problem = SandboxProblem("SandboxPodsNotCreated", "Error seen: no")
    assert cache.sandboxes["a", "one"] == replace(pool, claimed=2, problem=problem)
    api.pods.append(build_pod("Running", "x-1"))
    await process(api, cache)
    assert len(api.read) == 1


async def test_released_pods_of_sandboxes_are_deleted_more_often_also_after_an_error() -> None:
    cache = Cache(lambda key: None)
    cache.sandboxes |= {
        ("a", "one"): SandboxPool("x", sandboxes=2),
        ("b", "two"): SandboxPool("y"),
        ("c", "three"): SandboxPool("z", sandboxes=2),
    }
    api = Api(None, broken="namespaces/a/")
    await delete_released(cast(KubernetesApi, api), cache)
    released = {"labelSelector": "rlt.dev/sandbox-of=three", "fieldSelector": "status.phase=Succeeded"}
    assert api.deleted == [("/api/v1/namespaces/c/pods", released)]


async def test_a_rejected_pod_is_found_in_the_events_of_the_pool() -> None:
    cache = Cache(lambda key: None)
    cache.jobs.put(o.manifest(SPEC))
    cache.sandboxes["demo", "sum"] = POOL
    for name, uid in ((NAME, "uid-pool"), ("sum-other", "uid-pool"), ("foreign-sandboxes-x", "uid-pool")):
        about = {"kind": "Job", "namespace": "demo", "name": name, "uid": uid}
        event = {"reason": REJECTED.reason, "message": f"{name}: {REJECTED.message}", "involvedObject": about}
        cache.warnings.put({"metadata": {"namespace": "demo", "name": name, "resourceVersion": "8"}, **event})
    await process(Api(build_pool(active=2)), cache)
    problem = cache.sandboxes["demo", "sum"].problem
    assert problem == SandboxProblem("SandboxPodsNotCreated", f"{NAME}: {REJECTED.message}")
    assert len(list(cache.warnings.select("uid-pool"))) == 1
