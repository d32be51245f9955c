"""spec.failurePolicy.restartPolicy InPlace: another execution of a failed program on the same RayCluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import CurrentAttempt, Phase
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job
from rlt_operator.conditions import find_condition
from rlt_operator.lifecycle.in_place import MAX_IN_PLACE, PODS_TIMEOUT_S
from rlt_operator.observation import Container, Observed, Ray, RayJob, RayPreflight, Termination
from rlt_operator.reconcile.plan import is_irreversible, plan

NODES = tuple(Node(f"node-{number}", conditions={"Ready": "True"}) for number in range(3))
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NOT_CLEAR = "Job entrypoint command failed with exit code 75, last available logs (truncated to 20,000 chars):"
LATER = o.NOW + timedelta(minutes=6)
"""No delay before the next attempt is longer."""


def job(policy: str = "InPlace", **changes: Any) -> Job:
    spec = {**o.SPEC, "storage": {"claimName": "runs"}, "checkpoint": {"saveFreq": 10}}
    return o.job({**spec, "failurePolicy": {"maxRestarts": 9, "restartPolicy": policy}, **changes})


def started(ray_job: Job) -> Observed:
    """A running program, with its pods on three nodes."""
    pods = tuple(replace(pod, node=f"node-{number}") for number, pod in enumerate(o.pods()))
    ready = replace(o.READY, job=replace(ray_job, status=ray_job.status), pods=pods, nodes=NODES, pod_nodes=NODES)
    return o.after(replace(o.recorded(ready), ray=o.running(40)))


def fail(observed: Observed, message: str = "boom") -> Observed:
    """The job after the reconciliation that finds the program failed."""
    return o.after(replace(observed, ray=o.ended("FAILED", message)))


def find_left(observed: Observed) -> Observed:
    """The program has ended because processes of its predecessor are left."""
    log = "rlt-trainer: error: Processes of an earlier attempt may exist: pod sum-workers-worker-b has 1 processes."
    return replace(observed, ray=Ray(job=RayJob("FAILED", NOT_CLEAR), log=log))


def run_again(observed: Observed) -> Observed:
    """The next execution."""
    return o.after(replace(observed, ray=o.running(50)), now=LATER)


def current(observed: Observed) -> CurrentAttempt:
    found = observed.job.status.current_attempt
    assert found
    return found


def reason(observed: Observed) -> str:
    found = find_condition(observed.job.status, C.RUNNING)
    assert found
    return found.reason


def test_the_status_has_the_next_execution_before_anything_is_submitted() -> None:
    running = started(job())
    failing = replace(running, ray=o.ended("FAILED", "boom"))
    decided = plan(failing, o.NOW)
    assert (decided.submit, decided.delete_cluster, decided.apply) == (None, None, ())
    assert is_irreversible(running.job.status, decided)
    failed = o.after(failing)
    (attempt,) = failed.job.status.attempts
    assert (attempt.number, attempt.execution, attempt.reason) == (1, 1, Reason.PROGRAM_FAILED)
    head = o.HEAD_UID
    assert current(failed) == CurrentAttempt(ray_cluster_uid=o.CLUSTER_UID, execution=2, head_pod_uid=head)
    assert failed.job.status.message == (
        "Attempt 1 failed, restart 1 of 9: boom. The next attempt uses the same Ray cluster, and starts from the "
        "beginning."
    )


def test_the_next_program_looks_for_earlier_processes_and_starts_without_a_delay() -> None:
    failed = replace(fail(started(job())), ray=Ray())
    program = plan(failed, o.NOW).submit
    assert program
    assert program.id == "sum-99999999-2"
    assert program.entrypoint.endswith(" --attempt 2 --holder sum-99999999-2 --clear 3")
    assert "/attempts/2/program.log" in program.entrypoint
    again = o.after(replace(failed, ray=o.running(50)))
    assert (again.job.status.phase, current(again).execution, again.job.status.restarts) == (Phase.RUNNING, 2, 1)


def test_preflight_checks_on_another_node_look_for_earlier_processes_first() -> None:
    """They use the devices."""
    failed = replace(fail(started(job(preflight={"level": "basic"}))), ray=Ray())
    checks = plan(failed, o.NOW).submit
    assert checks
    assert checks.id == "sum-99999999-2-preflight"
    assert checks.entrypoint.startswith("python3 /etc/rlt/rlt_pod.pyz clear 3 && exec python3 /etc/rlt/rlt_pod.pyz pre")
    ended = RayPreflight(RayJob("FAILED", NOT_CLEAR), "Ray has 2 living nodes instead of 3")
    released = o.after(replace(failed, ray=Ray(preflight=ended)))
    assert "Ray has 2 living nodes instead of 3" in (released.job.status.message or "")
    assert (current(released).execution, released.job.status.restarts) == (1, 1)


def test_only_a_job_with_this_policy_or_a_bucket_has_a_lease() -> None:
    """Without it, the driver and rank 0 may have different volumes."""
    in_bucket = job("Recreate", storage={"bucket": "s3://runs/a"})
    for manifest, expected in ((job("InPlace"), True), (job("Recreate"), False), (in_bucket, True)):
        ready = replace(started(manifest), ray=Ray())
        attempt = CurrentAttempt(ray_cluster_uid=o.CLUSTER_UID, head_pod_uid=o.HEAD_UID)
        status = ready.job.status.model_copy(update={"current_attempt": attempt})
        submission = plan(replace(ready, job=replace(ready.job, status=status)), o.NOW).submit
        assert submission
        assert submission.entrypoint.endswith(" --attempt 1 --holder sum-99999999") is expected


def unready(observed: Observed) -> Observed:
    return replace(observed, pods=(*observed.pods[:2], replace(observed.pods[2], ready=False)))


def end_container(observed: Observed, number: int = 2, *, after_start_s: float = 10) -> Observed:
    """The container of a pod ended, relative to the start of the program."""
    time = datetime.fromtimestamp(1767323000 + after_start_s, UTC)
    ended = Container("ray", termination=Termination("OOMKilled", 137, "", time), restarts=1, running=True)
    pods = list(observed.pods)
    pods[number] = replace(pods[number], ready=False, containers=(ended,))
    return replace(observed, pods=tuple(pods))


def head_crashed(observed: Observed) -> Observed:
    return end_container(observed, 0)


def crashed_before(observed: Observed) -> Observed:
    return end_container(observed, after_start_s=-10)


def other_head(observed: Observed) -> Observed:
    return replace(observed, pods=(replace(observed.pods[0], uid="another"), *observed.pods[1:]))


def cordoned(observed: Observed) -> Observed:
    nodes = (*NODES[:2], replace(NODES[2], cordoned=True))
    return replace(observed, nodes=nodes)


def not_ready(observed: Observed) -> Observed:
    return replace(observed, nodes=(*NODES[:2], replace(NODES[2], conditions={"Ready": "False"})))


def unknown_nodes(observed: Observed) -> Observed:
    return replace(observed, nodes=())


@pytest.mark.parametrize(
    "change", [unready, head_crashed, crashed_before, other_head, cordoned, not_ready, unknown_nodes]
)
def test_an_unhealthy_cluster_is_released(change: Any) -> None:
    failed = fail(change(started(job())))
    assert len(failed.job.status.attempts) == 1
    assert current(failed).execution == 1
    assert plan(failed, o.NOW).delete_cluster == o.CLUSTER_UID


@pytest.mark.parametrize(
    ("ray_job", "message"),
    [
        (job("Recreate"), "boom"),
        (job(), "The actor died because its node has died. Node Id: 3d"),
    ],
)
def test_other_failures_release_the_cluster(ray_job: Job, message: str) -> None:
    failed = o.after(replace(started(ray_job), ray=o.ended("FAILED", message)), now=LATER)
    assert (len(failed.job.status.attempts), current(failed).execution) == (1, 1)
    assert plan(failed, LATER).delete_cluster == o.CLUSTER_UID


def test_the_same_failure_twice_releases_the_cluster() -> None:
    second = fail(run_again(fail(started(job()), OUT_OF_MEMORY)), OUT_OF_MEMORY)
    assert [(each.number, each.execution, each.finding) for each in second.job.status.attempts] == [
        (1, 1, "GpuOutOfMemory"),
        (2, 2, "GpuOutOfMemory"),
    ]
    assert plan(second, LATER).delete_cluster == o.CLUSTER_UID


def test_different_failures_use_the_cluster_a_bounded_number_of_times() -> None:
    observed = started(job())
    for number in range(MAX_IN_PLACE + 1):
        assert plan(observed, o.NOW).delete_cluster is None
        observed = fail(observed, OUT_OF_MEMORY if number % 2 else "boom")
        if number < MAX_IN_PLACE:
            assert current(observed).execution == number + 2
            observed = run_again(observed)
    assert current(observed).execution == MAX_IN_PLACE + 1
    assert plan(observed, LATER).delete_cluster == o.CLUSTER_UID


def test_the_second_execution_in_place_is_delayed() -> None:
    observed = fail(run_again(fail(started(job()))), OUT_OF_MEMORY)
    waiting = replace(observed, ray=Ray())
    delayed = plan(waiting, o.NOW)
    assert (delayed.submit, delayed.requeue_after) == (None, 20)
    after = plan(waiting, LATER)
    assert after.submit
    assert after.submit.id == "sum-99999999-3"


def silence(observed: Observed) -> Observed:
    return replace(observed, ray=Ray(unreachable="no route"))


@pytest.mark.parametrize(
    ("change", "now", "cause"),
    [
        (find_left, o.NOW, "pod sum-workers-worker-b has 1 processes"),
        (lambda each: replace(other_head(each), ray=Ray()), o.NOW, "the head was replaced"),
        (silence, o.NOW + timedelta(seconds=PODS_TIMEOUT_S + 1), "no route"),
    ],
)
def test_a_cluster_that_is_not_clear_is_released_without_another_restart(change: Any, now: Any, cause: str) -> None:
    failed = fail(started(job()))
    given_up = plan(change(failed), now)
    assert (given_up.submit, given_up.delete_cluster) == (None, None)
    released = o.after(change(failed), now=now)
    assert cause in (released.job.status.message or "")
    assert (current(released).execution, released.job.status.restarts) == (1, 1)
    assert plan(replace(released, ray=o.ended("FAILED", "boom")), now).delete_cluster == o.CLUSTER_UID


def test_a_program_whose_ray_job_was_accepted_is_released_in_the_same_way() -> None:
    released = o.after(find_left(run_again(fail(started(job())))))
    assert (current(released).execution, released.job.status.restarts, len(released.job.status.attempts)) == (1, 1, 1)
    assert plan(replace(released, ray=o.ended("FAILED", "boom")), o.NOW).delete_cluster == o.CLUSTER_UID


def test_the_exit_code_of_the_check_has_no_meaning_in_a_first_execution() -> None:
    """A program that ends with it by itself has a failed attempt on each RayCluster."""
    failed = o.after(find_left(started(job())))
    assert [each.reason for each in failed.job.status.attempts] == [Reason.PROGRAM_FAILED]
    assert (current(failed).execution, failed.job.status.restarts) == (2, 1)


def test_ray_that_does_not_answer_for_a_short_time_keeps_the_cluster() -> None:
    waiting = o.after(silence(fail(started(job()))))
    assert (reason(waiting), current(waiting).execution) == (Reason.WAITING_FOR_CLUSTER, 2)


def test_a_pod_that_is_lost_meanwhile_is_waited_for() -> None:
    failed = replace(unready(fail(started(job()))), ray=Ray())
    waiting = o.after(failed)
    assert (reason(waiting), current(waiting).execution) == (Reason.WAITING_FOR_CLUSTER, 2)
    assert (plan(waiting, o.NOW).submit, plan(waiting, o.NOW).delete_cluster) == (None, None)
    released = o.after(waiting, now=LATER)
    assert "after 120 s, The head is ready, 1 of 2 workers are ready." in (released.job.status.message or "")
    assert current(released).execution == 1


def test_a_worker_whose_container_starts_again_keeps_the_cluster() -> None:
    """Ray reports the node as lost. The end of the container explains it, without a wait for a disruption."""
    lost = fail(end_container(started(job())), "The actor died because its node has died.")
    assert [(each.reason, each.finding) for each in lost.job.status.attempts] == [
        (Reason.PROGRAM_FAILED, "ContainerOomKilled")
    ]
    assert current(lost).execution == 2
    ended = lost.pods[2].containers[0].termination
    assert ended
    waiting = o.after(replace(lost, ray=Ray()))
    assert (reason(waiting), plan(waiting, o.NOW).submit) == (Reason.WAITING_FOR_CLUSTER, None)
    ready = replace(waiting, pods=(*waiting.pods[:2], replace(waiting.pods[2], ready=True)))
    program = plan(ready, o.NOW).submit
    assert program
    assert program.id == "sum-99999999-2"

    again = fail(run_again(replace(ready, ray=Ray())))  # the container's end explains one failure
    assert (again.job.status.attempts[-1].finding, current(again).execution) == (None, 3)


def delete_pod(observed: Observed, number: int = 2) -> Observed:
    """A pod is deleted while it runs, and its program has ended."""
    pods = list(observed.pods)
    pods[number] = replace(pods[number], deleting=True)
    return replace(observed, pods=tuple(pods))


def replace_pod(observed: Observed, *, ready: bool = True) -> Observed:
    """The deleted worker is gone, and KubeRay has created another one."""
    gone = observed.pods[2]
    successor = replace(gone, name="sum-workers-worker-d", uid="another", deleting=False, ready=ready)
    return replace(observed, pods=(*observed.pods[:2], successor), removed_pods=(replace(gone, deleting=False),))


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_a_worker_that_kuberay_replaces_keeps_the_other_pods(status: str) -> None:
    nodes = NODES if status == "FAILED" else ()  # as they are read
    deleted = replace(delete_pod(started(job())), nodes=nodes, pod_nodes=NODES[:2])
    lost = o.after(replace(deleted, ray=o.ended(status, "The actor died: its node has died.")))
    (attempt,) = lost.job.status.attempts
    assert (attempt.reason, attempt.disruption, current(lost).execution) == (Reason.DISRUPTED, "PodDeleted", 2)
    assert (lost.job.status.disruptions, lost.job.status.restarts) == (1, 0)

    terminating = o.after(replace(lost, ray=Ray()))
    assert terminating.job.status.message == "The head is ready, 1 of 2 workers are ready."
    assert terminating.job.status.disruption is None
    starting = o.after(replace_pod(terminating, ready=False))
    assert (reason(starting), plan(starting, o.NOW).submit) == (Reason.WAITING_FOR_CLUSTER, None)
    both = replace(replace_pod(terminating), pods=(*replace_pod(terminating).pods, terminating.pods[2]))
    waiting = o.after(both)
    assert waiting.job.status.message == f"Pod {terminating.pods[2].name} is terminating."
    assert plan(waiting, o.NOW).submit is None
    program = plan(replace_pod(terminating), o.NOW).submit
    assert program
    assert program.id == "sum-99999999-2"
    assert run_again(replace_pod(terminating)).job.status.disruption is None


def on_a_drained_node(observed: Observed) -> Observed:
    return cordoned(delete_pod(observed))


def on_a_node_that_is_not_ready(observed: Observed) -> Observed:
    return not_ready(delete_pod(observed))


def the_head(observed: Observed) -> Observed:
    return delete_pod(observed, 0)


def evicted(observed: Observed) -> Observed:
    deleted = delete_pod(observed)
    pod = replace(deleted.pods[2], disruption="EvictionByEvictionAPI")
    return replace(deleted, pods=(*deleted.pods[:2], pod))


@pytest.mark.parametrize("change", [on_a_drained_node, on_a_node_that_is_not_ready, the_head, evicted])
def test_other_lost_pods_release_the_cluster(change: Any) -> None:
    lost = fail(change(started(job())))
    assert [each.reason for each in lost.job.status.attempts] == [Reason.DISRUPTED]
    assert current(lost).execution == 1
    assert plan(lost, o.NOW).delete_cluster == o.CLUSTER_UID


def test_a_worker_that_is_lost_twice_in_a_row_releases_the_cluster() -> None:
    again = run_again(replace_pod(fail(delete_pod(started(job())))))
    second = fail(delete_pod(replace(again, removed_pods=())))
    assert [(each.disruption, each.execution) for each in second.job.status.attempts] == [
        ("PodDeleted", 1),
        ("PodDeleted", 2),
    ]
    assert plan(second, LATER).delete_cluster == o.CLUSTER_UID


def test_a_worker_that_is_not_replaced_releases_the_cluster() -> None:
    waiting = o.after(replace(fail(delete_pod(started(job()))), ray=Ray()))
    released = o.after(waiting, now=LATER)
    assert "after 120 s, The head is ready, 1 of 2 workers are ready." in (released.job.status.message or "")
    assert (current(released).execution, released.job.status.disruptions) == (1, 1)


def test_an_admission_by_kueue_keeps_the_number_of_the_execution() -> None:
    running = run_again(fail(started(job())))
    evicted = o.after(replace(running, cluster=o.cluster(suspend=True), pods=(), ray=None))
    assert current(evicted) == CurrentAttempt(ray_cluster_uid=o.CLUSTER_UID, execution=2)
    assert plan(evicted, LATER).delete_cluster is None


def test_a_suspension_before_the_next_execution_releases_the_cluster() -> None:
    failed = fail(started(job()))
    suspending = plan(o.suspend(replace(failed, ray=Ray())), o.NOW)
    assert (suspending.submit, suspending.delete_cluster) == (None, o.CLUSTER_UID)
