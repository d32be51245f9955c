"""A job waits for its RLRuntime. From its acceptance to its end, the status keeps the resolved spec."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import observed as o
import pytest
from planned import status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.job_status import RLTrainingJobStatus, RuntimeOrigin, RuntimeSnapshot
from rlt_api.validation.resolved_spec import dump_resolved_spec, load_resolved_spec
from rlt_core.job import MAX_KNOWN_CHARACTERS, Job, parse_job
from rlt_operator.conditions import find_condition
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


def image(plan: Plan) -> str:
    cluster = next(manifest for manifest in plan.apply if manifest["kind"] == "RayCluster")
    found: str = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return found


def accept(runtime: RuntimeSnapshot | None = RUNTIME, spec: dict[str, Any] = SPEC) -> RLTrainingJobStatus:
    """The status after the first reconciliation of a new job."""
    return status_of(plan(Observed(parse_job(o.manifest(spec), runtime)), o.NOW))


def read_kept(status: RLTrainingJobStatus) -> dict[str, Any]:
    """The resolved spec in the status."""
    return load_resolved_spec(status.resolved_spec or "")


def test_the_resolved_spec_is_stored_before_any_child_is_created() -> None:
    new = parse_job(o.manifest(SPEC), RUNTIME)
    first = plan(Observed(new), o.NOW)
    status = status_of(first)
    assert (first.apply, first.requeue_after) == ((), 0)
    assert read_kept(status)["cluster"]["image"] == "registry.example/trainer:cpu"
    assert status.runtime == RuntimeOrigin(name="cpu", generation=3)
    assert image(plan(Observed(stored(status, None)), o.NOW)) == "registry.example/trainer:cpu"


@pytest.mark.parametrize("later", [EDITED, None])
def test_an_edited_or_deleted_runtime_does_not_change_the_job(later: RuntimeSnapshot | None) -> None:
    status = accept()
    again = plan(Observed(stored(status, later)), o.NOW)
    assert image(again) == "registry.example/trainer:cpu"
    assert (again.status or status).resolved_spec == status.resolved_spec


def test_equal_specs_of_jobs_are_parsed_once_and_mutable_fields_are_read_each_time() -> None:
    status = accept()
    first = stored(status, None)
    assert stored(status, None).spec is first.spec
    longer = stored(status, None, {**SPEC, "ttlSecondsAfterFinished": 90})
    assert (first.spec and first.spec.ttl_seconds_after_finished) == 60
    assert (longer.spec and longer.spec.ttl_seconds_after_finished) == 90


def test_a_long_spec_is_not_kept_in_memory() -> None:
    long = {**SPEC, "cluster": {**SPEC["cluster"], "env": [{"name": "TEXT", "value": "x" * MAX_KNOWN_CHARACTERS}]}}
    status = accept(spec=long)
    assert stored(status, None, long).spec is not stored(status, None, long).spec
    assert stored(status, None, long).spec == stored(status, None, long).spec


def test_an_operator_with_other_defaults_does_not_change_the_job() -> None:
    """The stored values stand for defaults of the operator that accepted the job."""
    status = accept()
    resolved = read_kept(status)
    resolved["training"] |= {"learningRate": 0.5, "ppoMiniBatchSize": 16}
    resolved["rollout"]["temperature"] = 0.25
    resolved["cluster"]["head"]["resources"]["memory"] = "3Gi"
    resolved["security"]["runAsUser"] = 4242
    old = status.model_copy(update={"resolved_spec": dump_resolved_spec(resolved)})
    children = {child["kind"]: child for child in plan(Observed(stored(old, EDITED)), o.NOW).apply}
    config_map = children["ConfigMap"]
    cluster = children["RayCluster"]
    config = json.loads(config_map["data"]["training.json"])
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    assert (config["training"]["learningRate"], config["training"]["ppoMiniBatchSize"]) == (0.5, 16)
    assert config["rollout"]["temperature"] == 0.25
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "3Gi"
    assert pod["securityContext"]["runAsUser"] == 4242


def test_a_default_that_a_later_version_introduces_does_not_apply() -> None:
    """Every field of the accepting version has a value, null included."""
    resolved = read_kept(accept())
    assert resolved["training"]["totalEpochs"] is None
    assert resolved["scheduling"]["queueName"] is None


def test_mutable_fields_come_from_the_job_then_from_the_runtime() -> None:
    status = accept(spec={**SPEC, "ttlSecondsAfterFinished": 5, "suspend": True})
    now = stored(status, EDITED, {**SPEC, "ttlSecondsAfterFinished": 7, "activeDeadlineSeconds": 9}).spec
    later = stored(status, EDITED, SPEC).spec
    assert now
    assert later
    assert (now.ttl_seconds_after_finished, now.active_deadline_seconds, now.suspend) == (7, 9, False)
    assert (later.ttl_seconds_after_finished, later.active_deadline_seconds) == (60, None)


@pytest.mark.parametrize(
    ("resolved", "field"),
    [
        (dump_resolved_spec({**read_kept(accept()), "model": {"fromSeed": 7}}), "status.resolvedSpec.model.fromSeed"),
        ("{", "status.resolvedSpec: "),
    ],
)
def test_a_resolved_spec_that_is_not_understood_stalls_the_job(resolved: str, field: str) -> None:
    """Another writer of the status. Neither the cluster nor the resolved spec changes."""
    status = accept().model_copy(update={"resolved_spec": resolved})
    stalled = plan(replace(o.RUNNING, job=stored(status, RUNTIME)), o.NOW)
    assert (stalled.apply, stalled.delete_cluster, stalled.stop) == ((), None, None)
    condition = find_condition(status_of(stalled), C.STALLED)
    assert condition
    assert field in condition.message
    assert status_of(stalled).resolved_spec == resolved


def of_newer_operator(job: Job, value: object, **fields: Any) -> Job:
    """The job with a field in its resolved spec that this version lacks. `fields`: of its spec."""
    resolved = load_resolved_spec(job.status.resolved_spec or "")
    resolved["training"]["lookAhead"] = value
    return stored(
        job.status.model_copy(update={"resolved_spec": dump_resolved_spec(resolved)}), None, {**o.SPEC, **fields}
    )


def test_a_program_that_a_newer_operator_started_continues() -> None:
    running = o.after(o.RUNNING)
    again = o.after(replace(running, job=of_newer_operator(running.job, 3)))
    assert again.job.status.model_copy(update={"resolved_spec": running.job.status.resolved_spec}) == running.job.status
    suspended = replace(running, job=of_newer_operator(running.job, 3, suspend=True))
    attempt = status_of(plan(suspended, o.NOW)).current_attempt
    assert attempt
    assert attempt.stop


@pytest.mark.parametrize(("value", "creates"), [(3, False), (None, True)])
def test_no_cluster_is_created_without_the_values_of_a_newer_operator(value: object, creates: bool) -> None:
    accepted = o.after(o.FRESH)
    observed = replace(accepted, job=of_newer_operator(accepted.job, value))
    planned = plan(observed, o.NOW)
    assert ("RayCluster" in [each["kind"] for each in planned.apply]) is creates
    stalled = find_condition(o.after(observed).job.status, C.STALLED)
    field = "status.resolvedSpec.training.lookAhead: 3: is a field that only a newer version of the operator has"
    assert (stalled is not None and field in stalled.message) is not creates
