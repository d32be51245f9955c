"""A job waits for its RLRuntime. From its acceptance to its end, the status keeps a snapshot of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o
import pytest

from rlt_api.conditions import ConditionType as C
from rlt_api.conditions import Reason
from rlt_api.status import Phase, RLTrainingJobStatus, RuntimeSnapshot
from rlt_core.job import Job, parse_job
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed
from rlt_operator.reconcile.plan import Plan, plan

SPEC: dict[str, Any] = {**o.SPEC, "runtimeRef": {"name": "cpu"}, "cluster": {"workers": [{"replicas": 2}]}}
RUNTIME = RuntimeSnapshot(
    name="cpu",
    generation=3,
    spec={
        "images": {"cpu": "registry.example/trainer:cpu"},
        "nodePools": [{"name": "small", "resources": {"cpu": "2", "memory": "8Gi"}}],
        "defaults": {"ttlSecondsAfterFinished": 60},
        "limits": [{"field": "spec.cluster.workers[].replicas", "max": 4}],
    },
)
EDITED = RUNTIME.model_copy(update={"generation": 4, "spec": {"images": {"cpu": "registry.example/other:1"}}})


def stored(status: RLTrainingJobStatus, runtime: RuntimeSnapshot | None, spec: dict[str, Any] = SPEC) -> Job:
    """The job in the next reconciliation, with the current runtime."""
    return parse_job({**o.manifest(spec), "status": status.to_json()}, runtime)


def status_of(plan: Plan) -> RLTrainingJobStatus:
    assert plan.status
    return plan.status


def image(plan: Plan) -> str:
    cluster = next(manifest for manifest in plan.apply if manifest["kind"] == "RayCluster")
    found: str = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return found


def test_the_runtime_provides_missing_fields() -> None:
    first = plan(Observed(o.job(SPEC, runtime=RUNTIME)), o.NOW)
    assert image(first) == "registry.example/trainer:cpu"
    assert status_of(first).runtime_snapshot == RUNTIME


@pytest.mark.parametrize("later", [EDITED, None])
def test_an_edited_or_deleted_runtime_does_not_change_the_job(later: RuntimeSnapshot | None) -> None:
    status = status_of(plan(Observed(o.job(SPEC, runtime=RUNTIME)), o.NOW))
    again = plan(Observed(stored(status, later)), o.NOW)
    assert image(again) == "registry.example/trainer:cpu"
    assert (again.status or status).runtime_snapshot == RUNTIME


def test_a_job_waits_for_its_runtime() -> None:
    waiting = plan(Observed(o.job(SPEC)), o.NOW)
    status = status_of(waiting)
    assert (waiting.apply, waiting.requeue_after, status.phase) == ((), 5.0, Phase.PENDING)
    accepted = find_condition(status, C.ACCEPTED)
    assert accepted
    assert (accepted.status, accepted.reason) == ("False", Reason.RUNTIME_NOT_FOUND)
    assert "RLRuntime cpu does not exist" in accepted.message
    assert is_true(status, C.STALLED)
    assert [event.reason for event in waiting.events] == ["RuntimeNotFound"]


def test_a_job_starts_when_its_runtime_is_created() -> None:
    waiting = status_of(plan(Observed(o.job(SPEC)), o.NOW))
    found = plan(Observed(stored(waiting, RUNTIME)), o.NOW)
    assert found.apply
    assert is_true(status_of(found), C.ACCEPTED)


def test_a_suspended_job_without_its_runtime_is_not_accepted() -> None:
    waiting = plan(Observed(o.job({**SPEC, "suspend": True})), o.NOW)
    assert not is_true(status_of(waiting), C.ACCEPTED)
    assert status_of(waiting).runtime_snapshot is None


def test_the_pending_deadline_applies_without_a_runtime() -> None:
    waiting = o.after(Observed(o.job({**SPEC, "pendingDeadlineSeconds": 4})))
    assert plan(waiting, o.NOW).requeue_after == 4
    late = o.after(waiting, now=o.NOW.replace(minute=59)).job.status
    failed = find_condition(late, C.FAILED)
    assert failed
    assert failed.reason == Reason.PENDING_DEADLINE_EXCEEDED
    assert not is_true(late, C.ACCEPTED)


def test_a_limit_of_the_runtime_rejects_the_job() -> None:
    too_many = {**SPEC, "cluster": {"workers": [{"replicas": 5}]}}
    rejected = plan(Observed(o.job(too_many, runtime=RUNTIME)), o.NOW)
    assert rejected.apply == ()
    assert "spec.cluster.workers[0].replicas: 5" in (status_of(rejected).message or "")
    assert status_of(rejected).runtime_snapshot is None


def test_an_invalid_spec_fails_without_its_runtime() -> None:
    wrong = {**SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5, "ppoMiniBatchSize": 3}}
    assert status_of(plan(Observed(o.job(wrong)), o.NOW)).phase == Phase.FAILED


def test_the_ttl_of_the_runtime_applies() -> None:
    status = status_of(plan(Observed(o.job(SPEC, runtime=RUNTIME)), o.NOW))
    running = replace(o.RUNNING, job=stored(status, None))
    done = o.after(replace(running, ray=o.ended("SUCCEEDED", o.final_log())))
    gone = o.after(replace(done, cluster=None, pods=(), ray=None))
    assert plan(gone, o.NOW.replace(minute=59)).delete_job
