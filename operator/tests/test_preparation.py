"""spec.framework.prepare: steps run once, one after another, before the preflight checks and the program."""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest
from planned import condition_of, status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.children.preflight_inputs import list_data_files
from rlt_core.ray_http import Head, Request
from rlt_operator.conditions import find_condition
from rlt_operator.observation import Observed, Ray, RayJob, RayStep, Rejection
from rlt_operator.ray.jobs import observe_ray
from rlt_operator.reconcile.observe import choose_target
from rlt_operator.reconcile.plan import Plan, plan

PODS = tuple(replace(pod, ip="10.0.0.1") for pod in o.pods())
READY = o.recorded(replace(o.READY, job=o.job(o.PREPARED_SPEC), pods=PODS))
DATA = "sum-99999999-prepare-data"
MODEL = "sum-99999999-prepare-model"
PROGRAM = "sum-99999999"
VOLATILE = {**o.PREPARED_SPEC, "storage": {}}
RETRIED = {**o.PREPARED_SPEC, "failurePolicy": {"maxRestarts": 1}}
OTHER = "00000000-0000-0000-0000-000000000000"


def with_spec(spec: dict[str, Any], seen: Observed = READY) -> Observed:
    return replace(seen, job=replace(o.job(spec), status=seen.job.status))


def done(seen: Observed, *steps: str) -> Observed:
    """The next observation, after Ray has run these steps. It has no answer of the head yet."""
    for step in steps:
        seen = replace(o.after(replace(seen, ray=o.preparing("SUCCEEDED", step=step))), ray=Ray())
    return seen


def submitted(decided: Plan) -> str:
    assert decided.submit
    return decided.submit.id


def test_the_steps_are_submitted_in_order_before_the_program() -> None:
    assert submitted(plan(READY, o.NOW)) == DATA
    assert submitted(plan(done(READY, "data"), o.NOW)) == MODEL
    assert submitted(plan(done(READY, "data", "model"), o.NOW)) == PROGRAM


def test_the_steps_precede_the_preflight_checks() -> None:
    checked = with_spec({**o.PREPARED_SPEC, "preflight": {"level": "basic"}})
    assert submitted(plan(checked, o.NOW)) == DATA
    assert submitted(plan(done(checked, "data", "model"), o.NOW)) == f"{PROGRAM}-preflight"


def test_a_job_of_checks_alone_runs_no_step() -> None:
    """It does not check the files that a step creates either."""
    step = {"framework": {"prepare": o.PREPARED_SPEC["framework"]["prepare"]}}
    files = {"data": {"files": ["/mnt/rlt/data/train.parquet"]}, "rewards": [{"name": "exact"}]}
    spec = {**o.SPEC, **step, **files, "preflight": {"only": True}}
    assert submitted(plan(with_spec(spec), o.NOW)) == f"{PROGRAM}-preflight"
    for only, expected in ((True, []), (False, ["/mnt/rlt/data/train.parquet"])):
        parsed = o.job({**spec, "preflight": {"only": only}}).spec
        assert parsed
        assert list_data_files(parsed) == expected


def test_the_builtin_trainer_has_steps_too() -> None:
    step = {"name": "data", "command": ["rlt-trainer", "prepare", "gsm8k", "--hub", "--output", "/mnt/rlt/data"]}
    assert submitted(plan(with_spec({**o.SPEC, "framework": {"prepare": [step]}}), o.NOW)) == DATA


def test_a_step_runs_in_the_wrapper_that_keeps_its_output() -> None:
    submission = plan(READY, o.NOW).submit
    assert submission
    words = shlex.split(submission.entrypoint)
    log = "/mnt/rlt/runs/sum-11111111/attempts/1/prepare-data.log"
    assert words[:6] == ["exec", "python3", "/etc/rlt/rlt_pod.pyz", "run-command", "--log", log]
    assert words[6:] == ["--no-progress", "--", "python3", "-m", "download", "a b"]
    volatile = plan(with_spec(VOLATILE), o.NOW).submit
    assert volatile
    assert "--log" not in volatile.entrypoint


def test_the_program_has_the_runtime_environment_and_no_step_has_it() -> None:
    given = {"workingDir": "file:///mnt/rlt/code.zip", "pip": ["a==1"]}
    seen = with_spec({**o.PREPARED_SPEC, "framework": {**o.PREPARED_SPEC["framework"], "runtimeEnv": given}})
    environments = []
    for observed in (seen, done(seen, "data", "model")):
        submission = plan(observed, o.NOW).submit
        assert submission
        environments.append(submission.runtime_env)
    assert environments == [{}, {"working_dir": "file:///mnt/rlt/code.zip", "pip": ["a==1"]}]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_the_program_waits_for_the_step(state: str) -> None:
    decided = plan(replace(READY, ray=o.preparing(state)), o.NOW)
    assert decided.submit is None
    assert decided.status
    assert (decided.status.phase, decided.status.prepared) == (Phase.PROVISIONING, [])
    assert condition_of(decided, C.RUNNING)[:2] == ("False", Reason.PREPARING)
    assert decided.status.message == "Step data of spec.framework.prepare is running."
    assert decided.status.current_attempt
    assert decided.status.current_attempt.prepare_step == "data"


def test_the_progress_of_a_download_is_in_the_status() -> None:
    answer = o.preparing("RUNNING")
    assert answer.step
    running = replace(answer, step=replace(answer.step, progress="12.3 of 56.9 GiB (21%)"))
    decided = plan(replace(READY, ray=running), o.NOW)
    assert decided.status
    assert decided.status.message == "Step data of spec.framework.prepare is running: 12.3 of 56.9 GiB (21%)."


@pytest.mark.parametrize(("log", "progress"), [("other\nrlt-download: 1.0 of 4.0 GiB (25%)\n", True), ("a\n", False)])
def test_the_end_of_a_running_steps_output_is_read(log: str, progress: bool) -> None:
    async def send(head: Head, request: Request) -> tuple[int, str]:
        if request.path == f"/api/jobs/{PROGRAM}":
            return 404, f"Job {PROGRAM} does not exist"
        if request.path == f"/api/jobs/{MODEL}":
            return 200, json.dumps({"status": "RUNNING", "driver_node_id": "n"})
        assert f"filename=job-driver-{MODEL}.log" in request.path
        return 200, log

    answer = asyncio.run(observe_ray(send, Head("demo", "head", "10.0.0.1"), PROGRAM, step_id=MODEL))
    assert answer.step
    assert answer.step.progress == ("1.0 of 4.0 GiB (25%)" if progress else None)


def test_a_success_is_in_the_status_before_the_next_step_is_submitted() -> None:
    decided = plan(replace(READY, ray=o.preparing("SUCCEEDED")), o.NOW)
    assert (decided.submit, decided.requeue_after) == (None, 0)
    assert decided.status
    assert [(each.name, each.head_pod_uid) for each in decided.status.prepared] == [("data", o.HEAD_UID)]


def test_the_result_of_another_step_does_not_count() -> None:
    decided = plan(replace(done(READY, "data"), ray=o.preparing("SUCCEEDED", step="data")), o.NOW)
    assert submitted(decided) == MODEL


def test_the_head_is_asked_for_the_first_step_that_has_not_succeeded() -> None:
    ids = []
    for seen in (READY, done(READY, "data"), done(READY, "data", "model")):
        target = choose_target(seen)
        assert target
        ids.append(target.step_id)
    assert ids == [DATA, MODEL, None]


def test_a_failed_step_fails_the_job_with_its_name_and_output() -> None:
    log = "Running entrypoint for job x: sh -c y\ntar: x.tgz is damaged\n"
    decided = plan(replace(READY, ray=o.preparing("FAILED", log)), o.NOW)
    message = "Step data of spec.framework.prepare failed: tar: x.tgz is damaged"
    assert condition_of(decided, C.FAILED) == ("True", Reason.PREPARE_FAILED, message)
    assert plan(o.after(replace(READY, ray=o.preparing("FAILED", log))), o.NOW).delete_cluster == o.CLUSTER_UID


def test_a_known_failure_of_a_step_is_found() -> None:
    log = "OSError: [Errno 28] No space left on device\n"
    status = plan(replace(READY, ray=o.preparing("FAILED", log)), o.NOW).status
    assert status
    assert [(each.code, each.pod) for each in status.findings][:1] == [("DiskFull", "sum-head-a")]


def test_a_step_without_output_is_reported() -> None:
    failed = Ray(step=RayStep(DATA, RayJob("FAILED")))
    message = condition_of(plan(replace(READY, ray=failed), o.NOW), C.FAILED)[2]
    assert message == "Step data of spec.framework.prepare exited without an error message."


def test_a_stopped_step_is_reported() -> None:
    ended_ms = int((o.NOW - timedelta(minutes=1)).timestamp() * 1000)
    stopped = Ray(step=RayStep(DATA, RayJob("STOPPED", end_ms=ended_ms)))
    found = condition_of(plan(replace(READY, ray=stopped), o.NOW), C.FAILED)
    assert found[1:] == (Reason.STOPPED, "Step data of spec.framework.prepare was stopped outside rlt.")


def retry(seen: Observed) -> Observed:
    """The next attempt on a new cluster, from the status after `seen`."""
    status = o.after(seen).job.status
    assert status.restarts == 1
    pods = tuple(replace(pod, cluster_uid=OTHER, uid=f"{pod.uid}-2") for pod in PODS)
    recreated = replace(seen, job=replace(seen.job, status=status), cluster=o.cluster(uid=OTHER), pods=pods, ray=Ray())
    return replace(o.after(recreated), ray=Ray())


def test_a_retry_runs_only_the_step_that_failed() -> None:
    failed = replace(done(with_spec(RETRIED), "data"), ray=o.preparing("FAILED", "boom", step="model"))
    assert submitted(plan(retry(failed), o.NOW)) == "sum-00000000-prepare-model"


def test_a_retry_of_the_program_runs_no_step() -> None:
    running = o.after(replace(done(with_spec(RETRIED), "data", "model"), ray=o.running()))
    assert submitted(plan(retry(replace(running, ray=o.ended("FAILED", "boom"))), o.NOW)) == "sum-00000000"


def test_without_a_pvc_a_new_head_runs_all_steps() -> None:
    spec = {**VOLATILE, "failurePolicy": {"maxRestarts": 1}}
    running = o.after(replace(done(with_spec(spec), "data", "model"), ray=o.running()))
    again = retry(replace(running, ray=o.ended("FAILED", "boom")))
    assert submitted(plan(again, o.NOW)) == "sum-00000000-prepare-data"
    other = replace(o.after(replace(again, ray=Ray(step=RayStep("sum-00000000-prepare-data", RayJob("SUCCEEDED"))))))
    assert [each.name for each in other.job.status.prepared] == ["model", "data"]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_head_replaced_after_a_step_is_lost(steps: int) -> None:
    seen = done(READY, *["data", "model"][:steps])
    if steps < 2:
        seen = o.after(replace(seen, ray=o.preparing("RUNNING", step=["data", "model"][steps])))
    pods = tuple(replace(pod, uid="new") if pod.is_head else pod for pod in PODS)
    lost = plan(replace(seen, pods=pods, ray=Ray()), o.NOW)
    assert lost.submit is None
    assert condition_of(lost, C.FAILED)[1] == Reason.HEAD_LOST
    assert "prepare" in condition_of(lost, C.FAILED)[2]


def test_a_head_that_has_lost_a_running_step_is_lost() -> None:
    seen = replace(o.after(replace(READY, ray=o.preparing("RUNNING"))), ray=Ray())
    assert condition_of(plan(seen, o.NOW), C.FAILED)[1] == Reason.HEAD_LOST


def test_an_unreachable_ray_changes_nothing() -> None:
    seen = o.after(replace(READY, ray=o.preparing("RUNNING")))
    decided = plan(replace(seen, ray=Ray(unreachable="connection refused")), o.NOW)
    assert decided.submit is None
    assert find_condition(status_of(decided), C.FAILED) is None


def test_a_rejected_step_reports_the_cause() -> None:
    rejected = plan(replace(READY, rejection=Rejection("No available agent", Reason.SUBMISSION_REJECTED)), o.NOW)
    message = "Ray rejected step data of spec.framework.prepare: No available agent"
    assert condition_of(rejected, C.RUNNING)[1:] == (Reason.SUBMISSION_REJECTED, message)


def test_a_suspension_releases_the_cluster_and_the_step_runs_again() -> None:
    seen = o.after(replace(done(READY, "data"), ray=o.preparing("RUNNING", step="model")))
    assert plan(o.suspend(seen), o.NOW).delete_cluster == o.CLUSTER_UID
    released = o.after(replace(o.suspend(seen), cluster=None, pods=(), ray=None))
    assert [each.name for each in released.job.status.prepared] == ["data"]


def test_an_evicted_cluster_runs_the_interrupted_step_again() -> None:
    seen = o.after(replace(done(READY, "data"), ray=o.preparing("RUNNING", step="model")))
    later = o.cluster(suspend=False, resumed=o.NOW + timedelta(minutes=1))
    assert submitted(plan(o.after(replace(seen, cluster=later, ray=Ray())), o.NOW)) == MODEL


LIFE = [
    (READY, None),
    (READY, o.preparing("RUNNING")),
    (READY, o.preparing("SUCCEEDED")),
    (READY, o.preparing("SUCCEEDED")),
    (READY, o.preparing("RUNNING", step="model")),
    (READY, o.preparing("SUCCEEDED", step="model")),
    (READY, o.preparing("SUCCEEDED", step="model")),
    (READY, o.running()),
]


@pytest.mark.parametrize("missed", range(1 << len(LIFE)))
def test_a_crash_at_any_point_skips_no_step(missed: int) -> None:
    """Each bit of `missed` is a status that is not written. What follows a step is not submitted without its record."""
    status = RLTrainingJobStatus()
    for number, (stage, ray) in enumerate(LIFE):
        seen = replace(stage, job=replace(o.job(o.PREPARED_SPEC), status=status), ray=ray or Ray())
        submission = plan(seen, o.NOW).submit
        recorded = {each.name for each in status.prepared}
        if submission and submission.id == MODEL:
            assert recorded == {"data"}
        if submission and submission.id == PROGRAM:
            assert recorded == {"data", "model"}
        if not missed >> number & 1:
            status = o.after(seen).job.status
