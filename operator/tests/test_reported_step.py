"""A poll that changes only the progress: its plan gives the status of the whole plan. Other polls get the latter."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest
from exploration.process import Poller
from hypothesis import given, settings
from hypothesis import strategies as st
from reconcile_loop import KEY, PATH, RAY_CLUSTER, FakeApi, Loop

from rlt_api.spec.training_config import ProgressReport
from rlt_core.children.programs import build_programs
from rlt_core.job import Manifest
from rlt_core.ray_http import Head, Request
from rlt_operator.conditions import format_time
from rlt_operator.observation import Observed, Ray, RayJob, SandboxPool
from rlt_operator.reconcile import reconcile as reconciliation
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.reported_step import MAX_UNPLANNED_S, keep_undisturbed, plan_report

SECRET = "correct-horse"
SPECS: list[dict[str, Any]] = [
    o.SPEC,
    {**o.COMMAND_SPEC, "activeDeadlineSeconds": 100_000},
    {**o.SPEC, "failurePolicy": {"progressDeadlineSeconds": 600}},
    {**o.SPEC, "cluster": o.ON_GPUS["cluster"]},
    {**o.SPEC, "cluster": {**o.SPEC["cluster"], "env": [{"name": "PASSWORD", "value": SECRET}]}},
]


def at(seconds: float) -> datetime:
    return o.NOW + timedelta(seconds=seconds)


def report(seconds: float, step: int = 90, **changes: Any) -> ProgressReport:
    return o.report(step, updated=format_time(at(seconds)), **changes)


def start(spec: dict[str, Any]) -> Observed:
    """A job that has run since NOW, after the write of its status."""
    pods = tuple(replace(pod, group="workers", node="node", scheduled=at(-300)) for pod in o.READY.pods)
    ready = o.recorded(replace(o.READY, job=o.job(spec), pods=pods))
    return o.after(replace(ready, ray=o.running(), sandboxes=SandboxPool("pool", ready=3, claimed=5)))


REPORTS = st.fixed_dictionaries(
    {"step": st.integers(1, 199)},
    optional={
        "seconds_per_step": st.none() | st.floats(0, 1e6),
        "longest_step_seconds": st.floats(0, 1e6),
        "tokens_per_second": st.floats(0, 1e15),
        "metrics": st.fixed_dictionaries({}, optional={"reward": st.floats(-1e9, 1e9), "kl": st.floats(0, 10)}),
        "latest_checkpoint_step": st.integers(0, 199),
        "phases": st.fixed_dictionaries({"generate": st.floats(0, 1e3), "uncommitted": st.floats(0, 1e3)}),
        "sandboxes": st.fixed_dictionaries(
            {"failed": st.integers(0, 99)}, optional={"claim_seconds_p99": st.floats(0, 9)}
        ),
        "checkpoint_directory": st.sampled_from(["/mnt/a", f"/mnt/{SECRET}"]),
    },
)


@settings(deadline=None)
@given(
    st.sampled_from(SPECS),
    st.lists(st.tuples(st.integers(0, 29), REPORTS), min_size=1, max_size=5),
    st.sampled_from([2.5, 15.0, 30.0]),
)
def test_the_status_is_the_one_of_the_whole_plan(
    spec: dict[str, Any], reports: list[tuple[int, dict[str, Any]]], interval: float
) -> None:
    """For reports in succession, whether they are written or too early."""
    observed = replace(start(spec), progress_interval=interval)
    before = keep_undisturbed(observed, plan(observed, o.NOW), "7", (), o.NOW)
    assert before
    seconds = 0
    for later, changes in reports:
        seconds += later
        ray = Ray(job=observed.ray.job if observed.ray else None, progress=report(seconds, **changes))
        observed = replace(observed, ray=ray)
        whole = plan(observed, at(seconds))
        short = plan_report(before, ray, interval, at(seconds))
        assert short
        assert (short.status is None) == (whole.status is None)
        assert short.requeue_after == whole.requeue_after
        assert (whole.apply, whole.submit, whole.stop, whole.events) == ((), None, None, ())
        before = replace(before, ray=ray, status=short.status or before.status)
        status = whole.status or observed.job.status
        names = ("progress", "checkpoint", "current_attempt", "usage", "sandboxes")
        fields = {name: getattr(before.status, name) for name in names}
        assert observed.job.status.model_copy(update=fields) == status
        observed = replace(observed, job=replace(observed.job, status=status))


RUNNING = RayJob("RUNNING", start_ms=1767323000000)


@pytest.mark.parametrize(
    "ray",
    [
        None,
        Ray(unreachable="timeout"),
        Ray(job=RayJob("SUCCEEDED", start_ms=1767323000000), progress=report(9)),
        Ray(job=replace(RUNNING, message="x"), progress=report(9)),
        Ray(job=RUNNING),
        Ray(job=RUNNING, progress=report(9, stage="exporting")),
        Ray(job=RUNNING, progress=report(9, step=0)),
        Ray(job=RUNNING, progress=report(9, broken_rules=[{"rule": "nonFinite", "evidence": "loss is NaN"}])),
        Ray(job=RUNNING, progress=report(9, checkpoint_error="No space left on device")),
    ],
)
def test_another_answer_gets_the_whole_plan(ray: Ray | None) -> None:
    observed = start(o.SPEC)
    before = keep_undisturbed(observed, plan(observed, o.NOW), "7", (), o.NOW)
    assert before
    assert plan_report(before, replace(o.running(), progress=report(9)), 2.5, at(9))
    assert plan_report(before, ray, 2.5, at(9)) is None


def test_a_deadline_gets_the_whole_plan() -> None:
    observed = start({**o.SPEC, "activeDeadlineSeconds": 100})
    before = keep_undisturbed(observed, plan(observed, o.NOW), "7", (), o.NOW)
    assert before
    ray = replace(o.running(), progress=report(95))
    early = plan_report(before, ray, 2.5, at(95))
    assert early
    assert early.requeue_after == plan(replace(observed, ray=ray), at(95)).requeue_after == 5
    assert plan_report(before, ray, 2.5, at(100)) is None
    forever = start(o.SPEC)
    before = keep_undisturbed(forever, plan(forever, o.NOW), "7", (), o.NOW)
    assert before
    assert plan_report(before, ray, 2.5, at(MAX_UNPLANNED_S)) is None


@pytest.mark.parametrize(
    "observed", [o.READY, o.suspend(start(o.SPEC)), replace(start(o.SPEC), ray=Ray(unreachable="timeout"))]
)
def test_a_job_that_does_not_run_undisturbed_gets_the_whole_plan(observed: Observed) -> None:
    assert keep_undisturbed(observed, plan(observed, o.NOW), "7", (), o.NOW) is None


class Training:
    """reconcile() of a running job, whose head reports what the test sets."""

    def __init__(self) -> None:
        self.loop = Loop(FakeApi())
        self.poller = Poller(lambda key: None)
        self.loop.sources = replace(self.loop.sources, poller=self.poller)
        self.step = 1
        metadata = {"namespace": "demo", "name": "sum", "uid": o.CLUSTER_UID, "resourceVersion": "9"}
        owner = {"kind": "RLTrainingJob", "name": "sum", "uid": o.UID, "controller": True}
        created = {"creationTimestamp": format_time(o.NOW), "ownerReferences": [owner]}
        self.loop.api.objects[RAY_CLUSTER] = {"kind": "RayCluster", "metadata": metadata | created, "status": {"a": 1}}
        self.loop.cache.programs.put(with_version(build_programs("demo")))
        for pod in ("sum-head-a", "sum-workers-worker-b", "sum-workers-worker-c"):
            self.put_pod(pod, "10")

    def put_pod(self, name: str, version: str, **status: Any) -> None:
        owner = {"kind": "RayCluster", "name": "sum", "uid": o.CLUSTER_UID, "controller": True}
        labels = {"rlt.dev/job": "sum", "ray.io/node-type": "head" if "head" in name else "worker"}
        metadata = {"namespace": "demo", "name": name, "uid": f"uid-{name}", "resourceVersion": version}
        ready = {"type": "Ready", "status": "True"}
        self.loop.cache.pods.put(
            {
                "metadata": {**metadata, "labels": labels, "ownerReferences": [owner]},
                "status": {"phase": "Running", "podIP": name, "conditions": [ready], **status},
            }
        )

    async def answer(self, head: Head, request: Request) -> tuple[int, str]:
        if request.path == "/progress":
            return 200, report(60 * self.step, self.step).model_dump_json(by_alias=True)
        return 200, json.dumps({"status": "RUNNING", "start_time": 1767323000000})

    async def reconcile(self) -> None:
        await self.poller.ask(KEY, self.answer)
        await self.loop.run()

    async def start(self) -> None:
        """Reconcile until the job runs and its first step is recorded."""
        for _ in range(4):
            await self.reconcile()
        assert self.loop.api.status.phase == "Running"
        assert self.loop.sources.undisturbed


def with_version(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": "p", "resourceVersion": "1"}}


async def reject(*arguments: object) -> None:
    raise AssertionError("the job is observed and parsed")


async def test_a_step_is_written_without_parsing_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    await training.start()
    whole = Training()
    await whole.start()
    monkeypatch.setattr(reconciliation, "observe", reject)
    for training.step in (2, 3):
        writes = len(training.loop.api.writes)
        await training.reconcile()
        assert training.loop.api.writes[writes:] == [PATH]
        assert training.loop.api.status.progress
        assert training.loop.api.status.progress.step == training.step
    monkeypatch.undo()
    for whole.step in (2, 3):
        whole.loop.sources.undisturbed.clear()
        await whole.reconcile()
    ignored = {"current_attempt", "start_time", "active_since", "pending_since", "conditions"}
    kept = (training.loop.api.status, whole.loop.api.status)
    first, second = (each.model_dump(exclude=ignored) for each in kept)
    assert first == second


async def test_a_change_of_a_pod_gets_the_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    await training.start()
    training.put_pod("sum-workers-worker-b", "20", conditions=[])
    monkeypatch.setattr(reconciliation, "observe", reject)
    with pytest.raises(AssertionError, match="parsed"):
        await training.reconcile()


async def test_a_change_of_the_job_gets_the_whole_plan() -> None:
    training = Training()
    await training.start()
    job = training.loop.api.objects[PATH]
    job["metadata"] |= {"annotations": {"rlt.dev/cancel": "true"}, "resourceVersion": "90"}
    training.step = 2
    await training.reconcile()
    assert "ancel" in (training.loop.api.status.message or "")


async def test_a_job_that_has_changed_since_is_read_again() -> None:
    """The cache is behind the API server: the write is rejected."""
    training = Training()
    await training.start()
    training.loop.deliver()
    job = training.loop.api.objects[PATH]
    training.loop.api.objects[PATH] = {**job, "metadata": {**job["metadata"], "generation": 2, "resourceVersion": "90"}}
    training.step = 2
    await training.poller.ask(KEY, training.answer)
    result = await training.loop.reconcile()
    assert result.requeue_after == 0
    found = training.loop.cache.get_job(KEY)
    assert found
    assert found["metadata"]["generation"] == 2
