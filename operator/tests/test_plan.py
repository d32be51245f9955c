"""plan(): each phase and transition of a job, one reconciliation at a time.

* what is created, submitted, stopped and deleted, and when;
* conditions, phase and message; terminal conditions are final;
* a crash at any point: another plan from the observation continues and settles.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest
from planned import reason_of, status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.children.config_map import compute_hash, digest_data
from rlt_core.children.programs import build_programs, name_programs
from rlt_core.kubernetes.fair_queue import Urgency
from rlt_core.names import HASH_ANNOTATION
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.lifecycle.running import RUNNING_INTERVAL_S
from rlt_operator.manifests import parse_config
from rlt_operator.observation import Observed, Ray, Rejection
from rlt_operator.reconcile.plan import Plan, choose_urgency, is_irreversible, plan
from rlt_operator.reconcile.starting_pods import UNREPORTED_S
from rlt_operator.verdict import WAITING_INTERVAL_S


def test_a_new_job_gets_its_config_and_its_cluster() -> None:
    first = plan(o.FRESH, o.NOW)
    assert [manifest["kind"] for manifest in first.apply] == [
        "ConfigMap",
        "Secret",
        "RayCluster",
    ]
    assert status_of(first).phase == Phase.PENDING
    assert is_true(status_of(first), C.ACCEPTED)
    assert is_true(status_of(first), C.RECONCILING)


def test_starting_pods_are_provisioning() -> None:
    assert status_of(plan(o.PROVISIONING, o.NOW)).phase == Phase.PROVISIONING
    assert "0 of 2 workers" in (status_of(plan(o.PROVISIONING, o.NOW)).message or "")


def test_a_running_cluster_is_not_applied_again() -> None:
    assert plan(o.STARTED, o.NOW).apply == ()


@pytest.mark.parametrize(
    "ray", [o.running(), o.checks("RUNNING"), o.preparing("RUNNING")], ids=["job", "checks", "step"]
)
def test_the_pods_are_protected_once_ray_has_a_job(ray: Ray) -> None:
    spec = o.PREPARED_SPEC if ray.step else o.SPEC
    level = {"preflight": {"level": "basic"}} if ray.preflight else {}
    ready = o.recorded(replace(o.READY, job=o.job({**spec, **level})))
    assert "PodDisruptionBudget" not in [each["kind"] for each in plan(ready, o.NOW).apply]
    accepted = replace(ready, ray=ray)
    assert [each["kind"] for each in plan(accepted, o.NOW).apply][-1] == "PodDisruptionBudget"
    assert "PodDisruptionBudget" not in [each["kind"] for each in plan(o.after(accepted), o.NOW).apply]
    lost = replace(o.after(replace(accepted, rejection=Rejection("exceeded quota"))), rejection=None)
    assert "PodDisruptionBudget" in [each["kind"] for each in plan(lost, o.NOW).apply], "a failed request is repeated"


def test_pods_that_start_are_reported_after_a_time() -> None:
    """Unless they have a problem, or something else has changed."""
    created = o.after(replace(o.FRESH, rejection=None))
    pods = tuple(replace(pod, created=o.NOW) for pod in o.pods(ready=False))
    starting = replace(created, cluster=o.cluster(), pods=pods)
    late = o.NOW + timedelta(seconds=UNREPORTED_S)
    unreported = plan(starting, o.NOW + timedelta(seconds=4))
    assert unreported.status is None
    assert unreported.requeue_after == WAITING_INTERVAL_S
    assert plan(starting, late - timedelta(seconds=1)).requeue_after == 1
    assert "0 of 2 workers" in (status_of(plan(starting, late)).message or "")
    assert plan(starting, o.NOW - timedelta(seconds=1)).status, "the clock of the API server is ahead"
    stuck = tuple(replace(pod, unschedulable="0/3 nodes are available") for pod in pods)
    assert "0/3 nodes" in (status_of(plan(replace(starting, pods=stuck), o.NOW)).message or "")
    edited = replace(starting, job=replace(starting.job, generation=2))
    assert plan(edited, o.NOW).status


def test_the_submission_writes_no_status() -> None:
    """The status before it has the head and the condition already."""
    ready = replace(o.FRESH, cluster=o.cluster(), pods=o.pods(), ray=Ray())
    recorded = plan(ready, o.NOW)
    assert (recorded.submit, reason_of(recorded, C.RUNNING)) == (None, Reason.SUBMITTED)
    submitted = plan(o.after(ready), o.NOW)
    assert submitted.submit
    assert submitted.status is None


def test_the_way_to_running_has_one_event() -> None:
    ready = replace(o.FRESH, cluster=o.cluster(), pods=o.pods(), ray=Ray())
    assert [plan(each, o.NOW).events for each in (o.FRESH, ready, o.after(ready))] == [(), (), ()]
    running = replace(o.after(ready), ray=o.running())
    assert [event.reason for event in plan(running, o.NOW).events] == ["Running"]


def test_a_deleted_config_is_restored_before_the_start() -> None:
    (manifest,) = plan(o.PROVISIONING, o.NOW).apply
    assert manifest["kind"] == "ConfigMap"
    kept = replace(o.PROVISIONING, config=parse_config(manifest))
    assert plan(kept, o.NOW).apply == ()


@pytest.mark.parametrize("changes", [{}, {"metadata": {}}])
def test_a_changed_config_is_restored_before_the_start(changes: dict[str, Any]) -> None:
    """With the annotated hash of its former data, or without one."""
    (manifest,) = plan(o.PROVISIONING, o.NOW).apply
    changed = parse_config({**manifest, "data": {"training.json": "{}"}, **changes})
    assert plan(replace(o.PROVISIONING, config=changed), o.NOW).apply == (manifest,)


def test_a_config_of_another_operator_version_stays() -> None:
    """A queued or starting cluster mounts its files."""
    annotations = {HASH_ANNOTATION: compute_hash(digest_data({"old.json": "1"}))}
    other = parse_config({"metadata": {"annotations": annotations}, "data": {"old.json": "1"}})
    assert plan(replace(o.PROVISIONING, config=other), o.NOW).apply == ()


def test_a_deleted_config_of_a_command_is_restored() -> None:
    """Without preflight checks, a command has no config."""
    checked = o.job({**o.COMMAND_SPEC, "preflight": {"level": "basic"}})
    (manifest,) = plan(replace(o.PROVISIONING, job=checked), o.NOW).apply
    assert manifest["data"].keys() == {"preflight.json"}
    assert plan(replace(o.PROVISIONING, job=o.job(o.COMMAND_SPEC)), o.NOW).apply == ()


def test_missing_programs_are_restored_while_pods_may_mount_them() -> None:
    """Also after the start: a pod may be created again. This operator cannot build the programs of another version."""
    cluster = replace(o.cluster(), programs=name_programs())
    for running in (o.PROVISIONING, o.RUNNING):
        lost = replace(running, cluster=cluster, programs_missing=True)
        assert build_programs(lost.job.namespace) in plan(lost, o.NOW).apply
        other = replace(lost, cluster=replace(cluster, programs="rlt-programs-old"))
        assert build_programs(lost.job.namespace) not in plan(other, o.NOW).apply


def test_programs_are_created_before_the_cluster_unless_the_namespace_has_them() -> None:
    programs = build_programs(o.FRESH.job.namespace)
    assert plan(replace(o.FRESH, programs_missing=True), o.NOW).apply[0] == programs
    assert programs not in plan(o.FRESH, o.NOW).apply


def test_the_ray_job_is_submitted_once_all_pods_are_ready() -> None:
    submission = plan(o.READY, o.NOW).submit
    assert submission
    assert submission.id == "sum-99999999"
    program = "exec python3 /etc/rlt/rlt_pod.pyz run-command --no-progress --run-directory /mnt/rlt/runs/sum-11111111"
    assert submission.entrypoint == f"{program} -- rlt-trainer run --config /etc/rlt/training.json"


def test_the_output_of_the_trainer_is_kept_in_its_volume() -> None:
    ready = o.recorded(replace(o.READY, job=o.job({**o.SPEC, "storage": {"claimName": "runs"}})))
    submission = plan(ready, o.NOW).submit
    assert submission
    assert (
        " run-command --log /mnt/rlt/runs/sum-11111111/attempts/1/program.log --no-progress " in submission.entrypoint
    )


def test_a_command_is_quoted_for_the_shell() -> None:
    ready = o.recorded(replace(o.READY, job=o.job(o.COMMAND_SPEC)))
    submission = plan(ready, o.NOW).submit
    assert submission
    run_directory = "--run-directory /mnt/rlt/runs/sum-11111111"
    run = f"exec python3 /etc/rlt/rlt_pod.pyz run-command --job sum --namespace demo {run_directory} --"
    assert submission.entrypoint == f"""{run} python -c 'print('"'"'a b'"'"')'"""


def test_the_settings_of_a_command_are_passed_on() -> None:
    framework = {**o.COMMAND_SPEC["framework"], "totalSteps": 9, "workingDirectory": "/work dir"}
    command = replace(o.READY, job=o.job({**o.COMMAND_SPEC, "framework": framework}))
    submission = plan(o.recorded(command), o.NOW).submit
    assert submission
    assert " --total-steps 9 --working-directory '/work dir' --run-directory " in submission.entrypoint


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_nothing_is_submitted_while_a_pod_is_missing(missing: int) -> None:
    some = tuple(pod for number, pod in enumerate(o.pods()) if number != missing)
    assert plan(replace(o.READY, pods=some), o.NOW).submit is None


def test_a_running_job_reports_progress() -> None:
    status = status_of(plan(o.RUNNING, o.NOW))
    assert status.phase == Phase.RUNNING
    assert is_true(status, C.RUNNING)
    assert not is_true(status, C.RECONCILING)
    assert status.progress
    assert (status.progress.display, status.progress.eta) == ("45%", "3m40s")
    assert status.start_time == "2026-01-02T03:03:20Z"
    assert status.ray_cluster
    assert status.ray_cluster.job_id == "sum-99999999"
    assert status.ray_cluster.ready_workers == 2


def test_a_checkpoint_that_could_not_be_saved_is_reported_until_one_is_saved() -> None:
    error = "The checkpoint of step 80 could not be saved to /mnt/rlt (rank 0: No space left on device)."
    ray_job = o.running().job
    failed = plan(replace(o.STARTED, ray=Ray(job=ray_job, progress=o.report(checkpoint_error=error))), o.NOW)
    status = status_of(failed)
    running = find_condition(status, C.RUNNING)
    assert running
    assert (running.status, running.reason) == ("True", Reason.CHECKPOINT_FAILED)
    assert error in running.message
    assert error in (status.message or "")
    assert [(event.type, event.reason) for event in failed.events] == [("Warning", Reason.CHECKPOINT_FAILED)]
    saved = replace(o.STARTED, job=replace(o.STARTED.job, status=status))
    running = find_condition(status_of(plan(saved, o.NOW)), C.RUNNING)
    assert running
    assert (running.status, running.reason) == ("True", Reason.STARTED)


def test_progress_alone_is_written_at_intervals() -> None:
    soon = replace(o.STARTED, ray=Ray(job=o.running().job, progress=o.report(91, updated="2026-01-02T03:04:06Z")))
    late = replace(o.STARTED, ray=Ray(job=o.running().job, progress=o.report(92, updated="2026-01-02T03:04:08Z")))
    assert plan(soon, o.NOW).status is None
    assert status_of(plan(late, o.NOW)).progress


def test_an_unchanged_observation_writes_nothing() -> None:
    again = plan(o.STARTED, o.NOW + timedelta(seconds=60))
    assert again.status is None
    assert again.events == ()
    assert again.requeue_after is not None
    assert again.requeue_after <= RUNNING_INTERVAL_S


def test_success_is_written_before_the_cluster_is_deleted() -> None:
    done = replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log()))
    first = plan(done, o.NOW)
    assert first.delete_cluster is None
    assert status_of(first).phase == Phase.SUCCEEDED
    progress = status_of(first).progress
    checkpoint = status_of(first).checkpoint
    assert progress
    assert checkpoint
    assert progress.percent == 100
    assert checkpoint.exported_path == "/mnt/rlt/runs/sum-11111111/export"
    assert status_of(first).completion_time == "2026-01-02T03:04:05Z"
    assert plan(o.after(done), o.NOW).delete_cluster == o.CLUSTER_UID


def test_a_finished_job_settles_without_pods() -> None:
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    gone = o.after(replace(done, cluster=None, pods=(), ray=None))
    status = gone.job.status
    assert status.ray_cluster is None
    assert not is_true(status, C.RECONCILING)
    assert is_true(status, C.SUCCEEDED)
    assert plan(gone, o.NOW) == Plan()


def test_a_failure_quotes_the_programs_error() -> None:
    log = "starting\nrlt-trainer: error: the model /models/nope does not exist\nTraceback...\n"
    failed = plan(replace(o.STARTED, ray=o.ended("FAILED", log, "exit code 1")), o.NOW)
    assert status_of(failed).message == "the model /models/nope does not exist"
    assert reason_of(failed, C.FAILED) == Reason.PROGRAM_FAILED
    assert is_true(status_of(failed), C.STALLED)
    assert [(event.type, event.reason) for event in failed.events] == [("Warning", "ProgramFailed")]


def test_without_a_log_the_failure_quotes_ray() -> None:
    failed = plan(replace(o.STARTED, ray=o.ended("FAILED", message="the driver ended")), o.NOW)
    assert status_of(failed).message == "the driver ended"


@pytest.mark.parametrize("final", ["SUCCEEDED", "FAILED", "STOPPED"])
@pytest.mark.parametrize("next_ray", [None, Ray(), o.running(), o.ended("FAILED"), o.ended("SUCCEEDED")])
def test_a_terminal_condition_is_final(final: str, next_ray: Ray | None) -> None:
    done = o.after(replace(o.STARTED, ray=o.ended(final)))
    phase = done.job.status.phase
    later = o.after(o.suspend(replace(done, ray=next_ray)))
    assert later.job.status.phase == phase
    assert plan(replace(later, cluster=None, pods=()), o.NOW).apply == ()
    assert plan(later, o.NOW).submit is None


def test_a_lost_head_fails_the_job() -> None:
    lost = plan(replace(o.STARTED, ray=Ray()), o.NOW)
    assert reason_of(lost, C.FAILED) == Reason.HEAD_LOST
    assert lost.submit is None


def test_a_new_cluster_is_a_new_attempt() -> None:
    other = "00000000-0000-0000-0000-000000000000"
    moved = tuple(replace(pod, cluster_uid=other) for pod in o.pods())
    recreated = replace(o.STARTED, cluster=o.cluster(uid=other), pods=moved, ray=Ray())
    assert plan(recreated, o.NOW).submit is None
    submission = plan(o.after(recreated), o.NOW).submit
    assert submission
    assert submission.id == "sum-00000000"


def test_an_unreachable_ray_is_not_a_failure() -> None:
    unreachable = plan(replace(o.STARTED, ray=Ray(unreachable="connection refused")), o.NOW)
    assert status_of(unreachable).phase == Phase.RUNNING
    assert reason_of(unreachable, C.RUNNING) == Reason.RAY_UNREACHABLE
    assert "connection refused" in (status_of(unreachable).message or "")
    assert not is_true(status_of(unreachable), C.FAILED)


def test_a_job_that_is_being_deleted_is_ignored() -> None:
    assert plan(replace(o.RUNNING, job=replace(o.job(), deleting=True)), o.NOW) == Plan()


def test_a_job_of_another_controller_is_ignored() -> None:
    theirs = o.job({**o.SPEC, "managedBy": "kueue.x-k8s.io/multikueue"})
    assert plan(Observed(theirs), o.NOW) == Plan()
    assert plan(Observed(o.job({**o.SPEC, "managedBy": "rlt.dev/operator"})), o.NOW).apply


def test_columns_come_from_the_complete_spec() -> None:
    status = status_of(plan(o.FRESH, o.NOW))
    assert (status.model, status.algorithm, status.gpus) == ("fromSeed", "grpo", 0)
    status = status_of(plan(Observed(o.job(o.COMMAND_SPEC)), o.NOW))
    assert (status.model, status.algorithm) == (None, "python")


def test_last_transition_time_is_kept_with_the_status() -> None:
    first = find_condition(o.STARTED.job.status, C.RUNNING)
    later = o.after(replace(o.STARTED, ray=Ray(unreachable="x")), now=o.NOW + timedelta(hours=1))
    back = o.after(replace(later, ray=o.running()), now=o.NOW + timedelta(hours=2))
    second = find_condition(back.job.status, C.RUNNING)
    assert first
    assert second
    assert first.last_transition_time < second.last_transition_time
    accepted = find_condition(back.job.status, C.ACCEPTED)
    assert accepted
    assert accepted.last_transition_time == first.last_transition_time


LIFE = [o.FRESH, replace(o.FRESH, cluster=o.cluster(has_status=False)), o.PROVISIONING, o.READY, o.RUNNING]
ENDS = ["SUCCEEDED", "FAILED", "STOPPED"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("missed", range(1 << len(LIFE)))
def test_a_crash_at_any_point_does_not_change_the_end(missed: int, end: str) -> None:
    """Each bit of `missed` is a status that is not written. The job ends in the same status."""
    status = RLTrainingJobStatus()
    for number, stage in enumerate([*LIFE, replace(o.RUNNING, ray=o.ended(end, o.final_log()))]):
        seen = replace(stage, job=replace(stage.job, status=status))
        if not missed >> number & 1:
            status = o.after(seen).job.status
    released = replace(o.FRESH, job=replace(o.job(), status=status))
    assert plan(released, o.NOW).apply == ()
    settled = o.after(released).job.status
    assert settled.phase == (Phase.SUCCEEDED if end == "SUCCEEDED" else Phase.FAILED)
    assert o.after(replace(released, job=replace(o.job(), status=settled))).job.status == settled


def test_a_further_attempt_is_irreversible_when_the_list_of_attempts_is_full() -> None:
    def with_attempts(*uids: str) -> RLTrainingJobStatus:
        failed = {"number": 1, "reason": "ProgramFailed", "message": "x", "completion_time": "2026-01-02T03:04:05Z"}
        return RLTrainingJobStatus.model_validate({"attempts": [{**failed, "ray_cluster_uid": uid} for uid in uids]})

    full = with_attempts("a", "b")
    assert is_irreversible(full, Plan(status=with_attempts("b", "c")))
    assert not is_irreversible(full, Plan(status=with_attempts("a", "b")))


URGENCIES = [
    (o.FRESH, Urgency.NORMAL),
    (o.RUNNING, Urgency.NORMAL),
    (replace(o.STARTED, ray=o.running(step=91)), Urgency.PROGRESS),
    (o.suspend(o.STARTED), Urgency.STOP),
    (replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())), Urgency.STOP),
]


@pytest.mark.parametrize(("observed", "urgency"), URGENCIES, ids=["new", "started", "step", "suspended", "ended"])
def test_stops_and_ends_are_urgent_and_progress_is_not(observed: Observed, urgency: Urgency) -> None:
    assert choose_urgency(observed.job.status, plan(observed, o.NOW)) == urgency


def test_a_program_that_a_signal_has_ended_names_it() -> None:
    """The output of the program does not count as Ray's message."""
    log = "failed with exit code 139, a line of the program\nstep:1 - actor/pg_loss:0.5\n"
    killed = "Job entrypoint command failed with exit code 137, last available logs (truncated): "
    decided = plan(replace(o.STARTED, ray=o.ended("FAILED", log, killed + log)), o.NOW)
    failed = find_condition(status_of(decided), C.FAILED)
    assert failed
    assert failed.message == (
        "SIGKILL has ended the program. Its last output: failed with exit code 139, a line of the program"
    )
