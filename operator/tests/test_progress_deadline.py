"""spec.failurePolicy.progressDeadlineSeconds: the recorded progress, its deadline, and the end of the attempt."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.blocks.operations import FailurePolicy, Observability
from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import AttemptProgress, CurrentAttempt, Phase
from rlt_operator.conditions import find_condition
from rlt_operator.lifecycle.no_progress import STACKS_TIMEOUT_S, describe_stacks
from rlt_operator.memory.attempt_progress import (
    MIN_DEADLINE_S,
    NOTICE_S,
    START_DEADLINE_S,
    DeadlineRule,
    choose_deadline,
)
from rlt_operator.observation import Observed, Ray, RayJob, RayStacks
from rlt_operator.reconcile.observe import choose_target
from rlt_operator.reconcile.plan import Plan, plan
from rlt_pod.dump_stacks import PREFIX


def at(seconds: float) -> datetime:
    return o.NOW + timedelta(seconds=seconds)


def start(
    deadline: int | None = 60, spec: dict[str, Any] = o.SPEC, *, ray: Ray | None = None, **policy: Any
) -> Observed:
    """A running job with this deadline. Its latest progress is at 0 s, step 90 unless `ray` is given."""
    ready = o.recorded(replace(o.READY, job=o.job(spec)))
    policy = {"progress_deadline_seconds": deadline, **policy}
    return o.after(replace(o.changed(ready, failure_policy=FailurePolicy(**policy)), ray=ray or o.running()))


def progress(observed: Observed) -> AttemptProgress:
    attempt = observed.job.status.current_attempt
    assert attempt
    assert attempt.progress
    return attempt.progress


def attempt_at(observed: Observed, seconds: float) -> CurrentAttempt:
    """The current attempt after a reconciliation at that time."""
    found = o.after(observed, now=at(seconds)).job.status.current_attempt
    assert found
    return found


def is_overdue(observed: Observed, seconds: float) -> bool:
    return attempt_at(observed, seconds).stacks is not None


def running(step: int = 90, **changes: Any) -> Ray:
    return Ray(job=o.running().job, progress=o.report(step, **changes))


def dump(status: Any = "SUCCEEDED", log: str | None = None) -> Ray:
    """Ray with the Ray job that writes the stacks."""
    return replace(o.running(), stacks=RayStacks(RayJob(status), log))


def log(**changes: Any) -> str:
    report = {"directory": "/mnt/rlt/runs/sum-11111111/attempts/1/stacks", "processes": 6, "pods": 3, "missing": []}
    return f"--- sum-head-a 7\nThread 7\n{PREFIX}{json.dumps({**report, **changes})}\n"


def test_a_report_without_progress_passes_the_deadline() -> None:
    job = start()
    assert (progress(job).time, progress(job).step, progress(job).deadline_seconds) == ("2026-01-02T03:04:05Z", 90, 60)
    assert not is_overdue(job, 59)
    assert is_overdue(job, 60)
    assert plan(job, at(50)).requeue_after == pytest.approx(10)


def test_progress_moves_the_deadline() -> None:
    news = replace(start(), ray=running(91, updated="2026-01-02T03:04:50Z"))
    later = o.after(news, now=at(50))
    assert (progress(later).time, progress(later).step) == ("2026-01-02T03:04:55Z", 91)
    assert not is_overdue(later, 109)
    assert is_overdue(later, 110)


def test_a_checkpoint_or_a_warmup_step_is_progress() -> None:
    """Everything that the program reports, by the time of the report."""
    saved = replace(start(), ray=running(90, updated="2026-01-02T03:04:50Z", latest_checkpoint_step=90))
    assert not is_overdue(saved, 60)
    assert not is_overdue(o.after(saved, now=at(60)), 119)


def test_frequent_progress_is_recorded_with_the_progress_and_never_overdue() -> None:
    """It causes no additional status writes."""
    job = start()
    writes = 0
    for second in range(1, 121):
        time = at(second).strftime("%Y-%m-%dT%H:%M:%SZ")
        job = replace(job, ray=running(90 + second, updated=time))
        decided = plan(job, at(second))
        job = o.after(job, now=at(second))
        assert job.job.status.progress
        assert progress(job).step == job.job.status.progress.step
        assert not is_overdue(job, second)
        writes += decided.status is not None
    assert writes == 40, "one in 2.5 s"


def test_the_last_progress_before_a_hang_is_recorded() -> None:
    """It may come right after a write of the progress. It is recorded 30 s later, and the deadline starts there."""
    job = replace(start(), ray=running(91))
    assert plan(job, at(5)).status is None
    assert (plan(job, at(5)).requeue_after or 0) <= 30
    recorded = o.after(job, now=at(30))
    assert (progress(recorded).step, progress(recorded).time) == (91, "2026-01-02T03:04:35Z")
    assert not is_overdue(recorded, 89)
    assert is_overdue(recorded, 90)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seconds_per_step": 2.0, "longest_step_seconds": 7.0}, MIN_DEADLINE_S),
        ({"seconds_per_step": 200.0, "longest_step_seconds": 400.5}, 4005),
        ({"seconds_per_step": 300.0}, 3000),  # a trainer that does not report the longest step
        ({"seconds_per_step": None}, START_DEADLINE_S),  # no step has finished
        ({"stage": "exporting"}, None),
        ({"stage": "preparing"}, START_DEADLINE_S),
        ({"stage": "warmup"}, START_DEADLINE_S),
        ({"step": 200}, None),  # the last one: a command may export its model
        ({"step": 200, "total_steps": 0}, MIN_DEADLINE_S),  # the total is not known
    ],
)
def test_the_default_follows_the_longest_step(changes: dict[str, Any], expected: int | None) -> None:
    spec = o.job().spec
    assert spec
    assert choose_deadline(DeadlineRule.of(spec), o.report(**{"step": 1, **changes})) == expected


def test_a_start_that_hangs_is_overdue() -> None:
    """The builtin trainer, whose server does not answer or reports nothing new."""
    for ray in (Ray(job=o.running().job), running(0, stage="preparing", seconds_per_step=None)):
        job = start(None, ray=ray)
        assert not is_overdue(job, START_DEADLINE_S - 1)
        assert is_overdue(job, START_DEADLINE_S)


def running_reason(observed: Observed, seconds: float) -> str:
    status = o.after(observed, now=at(seconds)).job.status
    condition = find_condition(status, C.RUNNING)
    assert condition
    assert condition.status == "True"
    return condition.reason


def test_a_command_without_a_step_gets_a_notice_and_continues() -> None:
    job = start(None, o.COMMAND_SPEC, ray=Ray(job=o.running().job))
    assert plan(job, at(NOTICE_S - 1)).requeue_after == pytest.approx(1)
    assert running_reason(job, NOTICE_S - 1) == Reason.STARTED
    assert running_reason(job, NOTICE_S) == Reason.NO_STEP_REPORTED
    noticed = o.after(job, now=at(NOTICE_S))
    assert plan(noticed, at(NOTICE_S + 1)).status is None, "one transition"
    assert (plan(noticed, at(NOTICE_S + 1)).requeue_after or 0) >= 1
    assert not is_overdue(noticed, 10**6)
    assert running_reason(replace(noticed, ray=running(1)), NOTICE_S + 60) == Reason.STARTED


@pytest.mark.parametrize(
    ("deadline", "changes"), [(0, {}), (10**6, {}), (None, {"observability": {"debugger": "ray"}})]
)
def test_a_command_with_a_deadline_without_one_or_with_a_debugger_gets_no_notice(
    deadline: int | None, changes: dict[str, Any]
) -> None:
    job = start(deadline, {**o.COMMAND_SPEC, **changes}, ray=Ray(job=o.running().job))
    assert running_reason(job, NOTICE_S) == Reason.STARTED


def test_the_deadline_is_disabled_by_0_and_by_default_with_a_debugger() -> None:
    spec = o.job().spec
    assert spec
    debugged = spec.model_copy(update={"observability": Observability(debugger="ray")})
    assert choose_deadline(DeadlineRule.of(debugged), o.report()) is None
    off = spec.model_copy(update={"failure_policy": FailurePolicy(progress_deadline_seconds=0)})
    assert choose_deadline(DeadlineRule.of(off), o.report()) is None
    assert not is_overdue(start(0), 10**6)


@pytest.mark.parametrize(("deadline", "overdue"), [(60, True), (None, False)])
def test_a_given_deadline_applies_from_the_start_of_the_program(deadline: int | None, overdue: bool) -> None:
    """Also to a command whose output has no step, which has no deadline by default."""
    job = start(deadline, o.COMMAND_SPEC, ray=Ray(job=o.running().job))
    assert progress(job).step is None
    assert is_overdue(job, 60) is overdue


def test_no_deadline_passes_while_ray_does_not_answer() -> None:
    job = start()
    for silent in (None, Ray(unreachable="no route")):
        assert not is_overdue(replace(job, ray=silent), 600)
    assert is_overdue(job, 600)  # it answers again, with the same report
    assert not is_overdue(replace(job, ray=running(95)), 600)


@pytest.mark.parametrize("ray", [Ray(), o.checks("RUNNING"), Ray(job=RayJob("PENDING"))])
def test_the_time_before_the_program_does_not_count(ray: Ray) -> None:
    job = start(ray=ray)
    assert job.job.status.current_attempt
    assert job.job.status.current_attempt.progress is None
    started = o.after(replace(job, ray=o.running()), now=at(1000))
    assert progress(started).time == "2026-01-02T03:20:45Z"
    assert not is_overdue(started, 1059)


def test_suspended_time_does_not_count() -> None:
    suspended = replace(o.after(o.suspend(start()), now=at(30)), ray=o.ended("STOPPED"))
    released = replace(o.after(suspended, now=at(31)), cluster=None, pods=(), ray=None)
    back = o.suspend(o.after(released, now=at(32)), False)
    again = o.after(replace(back, cluster=o.cluster(uid="new"), pods=o.pods(cluster_uid="new")), now=at(1000))
    assert again.job.status.current_attempt
    assert again.job.status.current_attempt.progress is None
    resumed = o.after(replace(again, ray=o.running()), now=at(1010))
    assert progress(resumed).time == "2026-01-02T03:20:55Z"


def test_an_admission_by_kueue_starts_again() -> None:
    evicted = o.after(replace(start(), cluster=o.cluster(suspend=True), ray=None), now=at(100))
    assert evicted.job.status.current_attempt
    assert evicted.job.status.current_attempt.progress is None


def test_the_stacks_are_written_before_the_program_is_stopped() -> None:
    """Each part acts on what the status holds."""
    decided = plan(start(), at(60))
    assert (decided.submit, decided.stop, decided.requeue_after) == (None, None, 0)
    job = o.after(start(), now=at(60))
    target = choose_target(replace(job, pods=tuple(replace(pod, ip="10.0.0.1") for pod in job.pods)))
    assert target
    assert target.stacks_id == "sum-99999999-stacks"
    submitted = plan(job, at(61))
    assert submitted.submit
    assert submitted.submit.entrypoint.split()[1:] == [
        "python3",
        "/etc/rlt/rlt_pod.pyz",
        "dump-stacks",
        "/mnt/rlt/runs/sum-11111111/attempts/1/stacks",
    ]
    writing = plan(replace(job, ray=dump("RUNNING")), at(62))
    assert (writing.submit, writing.stop) == (None, None)
    written = o.after(replace(job, ray=dump(log=log())), now=at(63))
    assert (plan(written, at(64)).stop, attempt_at(written, 64).stop is not None) == (None, True)
    stopping = o.after(written, now=at(64))
    assert plan(stopping, at(65)).stop == "sum-99999999"


def stopped(observed: Observed, ray: Ray | None = None, output: str = "") -> Plan:
    """The plan when the program has ended after the request to stop it."""
    job = o.after(observed, now=at(60))
    job = o.after(replace(job, ray=ray or dump(log=log())), now=at(63))
    job = o.after(job, now=at(64))
    return plan(replace(job, ray=o.ended("STOPPED", output)), at(70))


@pytest.mark.parametrize("claimed", [True, False])
def test_the_message_names_the_last_step_and_the_stacks(claimed: bool) -> None:
    storage = {"storage": {"claimName": "runs"}} if claimed else {}
    ended = stopped(start(spec={**o.SPEC, **storage}))
    assert ended.status
    assert ended.status.phase == Phase.FAILED
    failed = find_condition(ended.status, C.FAILED)
    assert failed
    where = "" if claimed else " of the head pod, until it is deleted (spec.storage has no PVC)"
    assert (failed.reason, failed.message) == (
        Reason.NO_PROGRESS,
        "The program has made no progress for 1m0s: the last finished step is 90. The deadline is 60 s "
        "(spec.failurePolicy.progressDeadlineSeconds). 6 stacks of 3 pods: "
        f"/mnt/rlt/runs/sum-11111111/attempts/1/stacks{where}.",
    )


def test_the_message_names_the_flight_records_of_a_job_with_gpus() -> None:
    ended = stopped(start(spec={**o.ON_GPUS, "storage": {"claimName": "runs"}}))
    assert ended.status
    records = "/mnt/rlt/runs/sum-11111111/attempts/1/nccl_trace_rank_*"
    assert f"If a collective has timed out, its flight records are {records}." in (ended.status.message or "")


def test_a_program_that_waits_for_resources_has_a_finding() -> None:
    summary = "Ray waits for resources: 1 x {'CPU': 3.0}. Its nodes have {'CPU': 1.0}."
    status = stopped(start(), dump(log=log(summary=summary))).status
    assert status
    assert [each.code for each in status.findings] == ["RayResourcesMissing"]
    assert f"{summary} RayResourcesMissing: " in (status.message or "")


def test_a_program_whose_ranks_wait_for_each_other_has_a_finding() -> None:
    output = "(WorkerDict pid=7) Initializing process group\n*** SIGTERM received at time=1769763600 on cpu 0 ***\n"
    status = stopped(start(), output=output).status
    assert status
    assert [each.code for each in status.findings] == ["ProcessGroupInitHang"]
    assert "ProcessGroupInitHang: Run `rlt preflight`" in (status.message or "")
    continued = stopped(start(), output=f"Initializing process group\nstep:1 - a:1\n{output[42:]}").status
    assert continued
    assert continued.findings == []


def test_an_attempt_without_progress_counts_as_a_restart() -> None:
    ended = stopped(start(max_restarts=1))
    assert ended.status
    assert (ended.status.restarts, ended.status.phase) == (1, Phase.PENDING)
    (attempt,) = ended.status.attempts
    assert (attempt.reason, attempt.step, attempt.number) == (Reason.NO_PROGRESS, 90, 1)
    assert "attempts/1/stacks" in attempt.message


@pytest.mark.parametrize("status", ["STOPPED", "FAILED"])
def test_the_reason_stays_no_progress(status: str) -> None:
    """Also if the stop makes the program fail, or the job is suspended meanwhile."""
    job = o.after(start(), now=at(60))
    job = o.after(replace(job, ray=dump(log=log())), now=at(63))
    job = replace(o.after(job, now=at(64)), ray=o.ended(status, "terminated"))
    for each in (job, o.suspend(job)):
        ended = plan(each, at(70))
        assert ended.status
        failed = find_condition(ended.status, C.FAILED)
        assert failed
        assert failed.reason == Reason.NO_PROGRESS


def test_a_program_that_ends_by_itself_has_its_own_reason() -> None:
    job = o.after(start(), now=at(60))
    ended = plan(replace(job, ray=o.ended("FAILED", "NCCL watchdog timeout")), at(61))
    assert ended.status
    failed = find_condition(ended.status, C.FAILED)
    assert failed
    assert (failed.reason, failed.message) == (Reason.PROGRAM_FAILED, "NCCL watchdog timeout")


@pytest.mark.parametrize("ray", [o.running(), dump("RUNNING"), Ray(unreachable="no route")])
def test_the_attempt_ends_without_stacks(ray: Ray) -> None:
    """Ray does not start or finish the stack dump, or does not answer."""
    job = replace(o.after(start(), now=at(60)), ray=ray)
    assert attempt_at(job, 60 + STACKS_TIMEOUT_S - 1).stacks == job.job.status.current_attempt.stacks  # type: ignore[union-attr]
    late = o.after(job, now=at(60 + STACKS_TIMEOUT_S))
    stop = o.after(late, now=at(60 + STACKS_TIMEOUT_S))
    ended = plan(replace(stop, ray=o.ended("STOPPED")), at(200))
    assert ended.status
    assert "Their stacks are not known: " in (ended.status.message or "")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (log(summary="1 of 4 is elsewhere."), "attempts/1/stacks. 1 of 4 is elsewhere."),
        (log(missing=["sum-worker-b"]), "attempts/1/stacks. Pods without an answer: sum-worker-b."),
        (log(error="/mnt/rlt: No space left on device"), "Their stacks cannot be written: /mnt/rlt: No space left"),
        (log(processes=0, missing=["sum-head-a"]), "No pod has written its stacks within its time. Pods without an"),
        (log(processes=0), "The stacks of the processes cannot be read: ptrace"),
        ("python3: can't open file '/etc/rlt/rlt_pod.pyz'", "can't open file '/etc/rlt/rlt_pod.pyz'"),
        ("", "the stack dump printed nothing"),
        (f"{PREFIX}[]", "Their stacks are not known"),
        (log(processes="many"), "Their stacks are not known"),
        (log(directory="/x" * 9000), "/x/x"),
    ],
)
def test_every_output_of_the_stack_dump_has_a_description(output: str, expected: str) -> None:
    assert expected in describe_stacks(output, kept=True)
