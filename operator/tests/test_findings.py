"""status.findings: the known failures of an attempt that ended early."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.job_status import FailureFinding, RLTrainingJobStatus
from rlt_core.fabric.nodes import parse_nodes
from rlt_operator.conditions import find_condition
from rlt_operator.diagnosis.findings import find_failures
from rlt_operator.observation import Container, Observed, Ray, Termination, WarningEvent
from rlt_operator.reconcile.plan import plan

OUT_OF_MEMORY = (
    "(WorkerDict pid=9, ip=10.0.0.1) [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
)
TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)"


def started(**policy: Any) -> Observed:
    pods = tuple(replace(pod, node=f"node-{i}", ip=f"10.0.0.{i}") for i, pod in enumerate(o.pods()))
    job = o.job({**o.SPEC, "failurePolicy": policy})
    return o.after(o.recorded(replace(o.FRESH, job=job, cluster=o.cluster(), pods=pods, ray=o.running())))


def end(observed: Observed, ray: Ray) -> RLTrainingJobStatus:
    status = plan(replace(observed, ray=ray), o.NOW).status
    assert status
    return status


def message_of(status: RLTrainingJobStatus, type: C) -> str:
    condition = find_condition(status, type)
    assert condition
    return condition.message


def reason_of(status: RLTrainingJobStatus, type: C) -> str:
    condition = find_condition(status, type)
    assert condition
    return condition.reason


def test_a_finding_has_pod_node_rank_evidence_and_remedy() -> None:
    status = end(started(), o.ended("FAILED", OUT_OF_MEMORY))
    (finding,) = status.findings
    assert (finding.code, finding.severity, finding.rank) == ("GpuOutOfMemory", "error", 3)
    assert (finding.pod, finding.node) == ("sum-workers-worker-b", "node-1")
    assert "Tried to allocate 2 GiB" in finding.evidence
    assert "spec.training.ppoMaxTokenLenPerDevice" in finding.remedy
    assert finding.source.startswith("https://")


def test_the_logs_of_ray_explain_a_failure_that_the_output_does_not() -> None:
    log = "gcs_health_check_manager.cc:115: Node 5f3a is marked dead because the health check failed due to a timeout"
    ray = replace(o.ended("FAILED", "the program ended"), ray_logs=("gcs_server.cc:1: started", log))
    (finding,) = end(started(), ray).findings
    assert (finding.code, finding.pod, finding.evidence) == ("RayNodeDead", "sum-head-a", log)


def test_the_first_finding_is_part_of_the_message_and_the_event() -> None:
    decided = plan(replace(started(), ray=o.ended("FAILED", OUT_OF_MEMORY)), o.NOW)
    assert decided.status
    message = message_of(decided.status, C.FAILED)
    assert f" GpuOutOfMemory: {decided.status.findings[0].remedy}" in message
    assert message == message_of(decided.status, C.STALLED) == decided.status.message
    events = [(event.type, event.reason) for event in decided.events if event.message == message]
    assert events == [("Warning", "GpuOutOfMemory")]


def test_the_first_finding_is_the_reason_of_failed_and_running_keeps_how_the_attempt_ended() -> None:
    observed = started()
    failed = o.after(replace(observed, ray=o.ended("FAILED", OUT_OF_MEMORY)))
    released = o.after(replace(failed, cluster=None, pods=(), ray=None))
    for status in (failed.job.status, released.job.status):
        reasons = [reason_of(status, condition_type) for condition_type in (C.FAILED, C.STALLED, C.RUNNING)]
        assert reasons == ["GpuOutOfMemory", "GpuOutOfMemory", "ProgramFailed"]


def test_a_restart_keeps_its_reason() -> None:
    status = end(started(maxRestarts=1), o.ended("FAILED", OUT_OF_MEMORY))
    assert (reason_of(status, C.RUNNING), find_condition(status, C.FAILED)) == ("Restarting", None)


def test_the_cause_of_a_pending_deadline_is_the_reason() -> None:
    head, worker, other = o.pods(ready=False)
    unschedulable = replace(worker, unschedulable="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    job = o.job({**o.SPEC, "pendingDeadlineSeconds": 60})
    waiting = o.after(o.recorded(replace(o.PROVISIONING, job=job, pods=(head, unschedulable, other))))
    status = plan(waiting, o.NOW + timedelta(hours=1)).status
    assert status
    assert reason_of(status, C.FAILED) == "GpusUnschedulable"


def test_a_wrapper_is_found_only_alone_and_is_not_part_of_the_message() -> None:
    log = OUT_OF_MEMORY.splitlines()[1]
    status = end(started(), o.ended("FAILED", log))
    assert [each.code for each in status.findings] == ["ActorDied"]
    assert "ActorDied: " not in message_of(status, C.FAILED)
    assert reason_of(status, C.FAILED) == "ProgramFailed"


def test_an_unknown_exception_is_quoted_and_the_reason_stays() -> None:
    log = '(RewardWorker pid=9, ip=10.0.0.1)   File "/app/reward.py", line 7, in score\n'
    log += "(RewardWorker pid=9, ip=10.0.0.1) ValueError: no answer in the response\n"
    status = end(started(), o.ended("FAILED", log))
    (finding,) = status.findings
    assert (finding.code, finding.pod) == ("UnknownException", "sum-workers-worker-b")
    assert finding.message.endswith("ValueError in score (/app/reward.py:7).")
    assert message_of(status, C.FAILED).endswith(" ValueError: no answer in the response")
    assert reason_of(status, C.FAILED) == "ProgramFailed"


@pytest.mark.parametrize(("fabric", "codes"), [("mnnvl+roce", ["NcclUsesSockets"]), ("tcp", [])])
def test_sockets_are_a_warning_on_nodes_with_rdma(fabric: str, codes: list[str]) -> None:
    observed = started()
    assert observed.job.status.network
    network = observed.job.status.network.model_copy(update={"fabric": fabric})
    status = observed.job.status.model_copy(update={"network": network})
    observed = replace(observed, job=replace(observed.job, status=status))
    log = "n1:812:934 [0] NCCL INFO Using network Socket\n"
    assert [each.code for each in find_failures(replace(observed, ray=o.ended("FAILED", log)))] == codes


def test_a_killed_container_and_an_event_are_evidence() -> None:
    observed = started()
    head, worker, other = observed.pods
    killed = Container("ray-worker", termination=Termination("OOMKilled", 137, ""))
    pods = (head, replace(worker, containers=(killed,)), other)
    event = WarningEvent(other.uid, "FailedMount", 'MountVolume.SetUp failed for volume "runs" : mount failed')
    status = end(replace(observed, pods=pods, warnings=(event,)), o.ended("FAILED", TIMEOUT))
    found = [(each.code, each.pod) for each in status.findings]
    assert found[:2] == [("ContainerOomKilled", worker.name), ("VolumeMountFailed", other.name)]
    assert found[-1] == ("CollectiveTimeout", head.name)


def test_without_a_log_the_message_of_ray_is_evidence() -> None:
    status = end(started(), o.ended("FAILED", message="runtime_env setup failed: no such package"))
    assert [(each.code, each.pod) for each in status.findings] == [("RuntimeEnvFailed", "sum-head-a")]


def test_findings_stay_during_a_restart_and_end_with_the_next_attempt() -> None:
    observed = started(maxRestarts=1)
    failed = o.after(replace(observed, ray=o.ended("FAILED", OUT_OF_MEMORY)))
    assert [each.code for each in failed.job.status.findings] == ["GpuOutOfMemory"]
    again = o.after(failed)
    assert again.job.status.findings == failed.job.status.findings
    assert message_of(again.job.status, C.RUNNING) == message_of(failed.job.status, C.RUNNING)
    released = o.after(replace(failed, cluster=None, pods=(), ray=None))
    assert released.job.status.findings == failed.job.status.findings
    assert "GpuOutOfMemory: " in message_of(released.job.status, C.RUNNING)
    uid = "00000002-8888-7777-6666-555555555555"
    next_attempt = replace(released, cluster=o.cluster(uid=uid), pods=o.pods(cluster_uid=uid), ray=o.running(1))
    assert o.after(o.after(next_attempt)).job.status.findings == []


def test_the_evidence_of_an_image_that_is_not_found_names_the_image() -> None:
    """The kubelet reports the failure in two events, before the state of the container shows it."""
    head, *workers = o.pods(ready=False)
    creating = replace(head, containers=(Container("ray-head", waiting_reason="ContainerCreating"),))
    pull = 'Failed to pull image "a/b:1": failed to resolve reference "a/b:1": connect: connection refused'
    events = tuple(WarningEvent(head.uid, "Failed", message) for message in ("Error: ErrImagePull", pull))
    observed = replace(o.PROVISIONING, pods=(creating, *workers), warnings=events)
    (found,) = find_failures(observed)
    assert (found.code, found.pod, found.evidence) == ("ImageNotFound", head.name, pull)


def test_a_cluster_that_does_not_start_has_findings_until_it_is_ready() -> None:
    def observe(reason: str, message: str) -> Observed:
        head, worker, other = o.pods(ready=False)
        waiting = Container("ray-worker", waiting_reason=reason, waiting_message=message)
        return replace(o.PROVISIONING, pods=(head, replace(worker, containers=(waiting,)), other))

    first = o.after(o.recorded(observe("ErrImagePull", "pull access denied for a/b, repository does not exist")))
    (found,) = first.job.status.findings
    assert (found.code, found.pod) == ("ImageNotFound", "sum-workers-worker-b")
    retried = observe("ImagePullBackOff", "Back-off pulling image a/b")
    later = o.after(replace(first, pods=retried.pods))
    assert later.job.status.findings == [found]
    assert o.after(replace(later, pods=o.pods(), ray=Ray())).job.status.findings == []


def test_the_scheduler_names_another_resource() -> None:
    """An event about a pod that has a node since is out of date."""

    def observe(resource: str, node: str | None = None) -> Observed:
        head, worker, other = o.pods(ready=False)
        message = f"0/2 nodes are available: 2 Insufficient {resource}."
        event = WarningEvent(head.uid, "FailedScheduling", "0/2 nodes are available: 2 Insufficient memory.")
        pods = (replace(head, node=node), replace(worker, unschedulable=message), other)
        return replace(o.PROVISIONING, pods=pods, warnings=(event,))

    first = o.after(o.recorded(observe("cpu")))
    assert [each.code for each in first.job.status.findings] == ["ResourcesUnschedulable"]
    later = o.after(replace(observe("nvidia.com/gpu", "node-1"), job=first.job))
    assert [each.code for each in later.job.status.findings] == ["GpusUnschedulable"]
    with_other_numbers = o.after(replace(observe("nvidia.com/gpu, 1 Insufficient cpu", "node-1"), job=later.job))
    assert {each.code for each in with_other_numbers.job.status.findings} == {
        "GpusUnschedulable",
        "ResourcesUnschedulable",
    }


def test_a_failed_job_keeps_its_message_and_findings() -> None:
    failed = o.after(replace(started(), ray=o.ended("FAILED", OUT_OF_MEMORY)))
    later = o.after(replace(failed, ray=o.ended("FAILED")))
    assert later.job.status.findings == failed.job.status.findings
    assert message_of(later.job.status, C.FAILED) == message_of(failed.job.status, C.FAILED)


def test_at_most_eight_are_found() -> None:
    lines = [
        "No space left on device",
        "Disk quota exceeded",
        "Stale file handle",
        "Too many open files",
        "No route to host",
        "ObjectStoreFullError",
        "std::bad_alloc",
        "CUDA error: invalid device ordinal",
        "KeyError: 'prompt'",
        "GatedRepoError",
    ]
    assert len(end(started(), o.ended("FAILED", "\n".join(lines))).findings) == 8


def test_secrets_of_the_job_are_masked() -> None:
    spec = {**o.SPEC, "cluster": {**o.SPEC["cluster"], "env": [{"name": "DB_PASSWORD", "value": "hunter2hunter2"}]}}
    observed = replace(started(), job=replace(o.job(spec), status=started().job.status))
    status = end(observed, o.ended("FAILED", "OSError: [Errno 28] No space left on device: 'hunter2hunter2'"))
    assert [each.evidence for each in status.findings] == ["OSError: [Errno 28] No space left on device: '***'"]


@pytest.mark.parametrize("ray", [o.running(), o.ended("SUCCEEDED", OUT_OF_MEMORY)])
def test_a_job_that_has_not_failed_has_no_findings(ray: Ray) -> None:
    assert end(started(), ray).findings == [] if ray.log else plan(replace(started(), ray=ray), o.NOW).status is None


def test_findings_are_part_of_the_status_as_json() -> None:
    (finding,) = end(started(), o.ended("FAILED", OUT_OF_MEMORY)).findings
    assert FailureFinding.model_validate(finding.model_dump(by_alias=True)) == finding


def test_problems_of_the_pods_nodes_are_findings_while_the_program_runs() -> None:
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped."}
    pressure = {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory", "message": "x"}
    healthy = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    conditions = {"node-0": healthy, "node-1": [pressure, unknown], "node-2": healthy}
    nodes = parse_nodes([{"metadata": {"name": name}, "status": {"conditions": c}} for name, c in conditions.items()])
    running = o.after(replace(started(), pod_nodes=nodes))
    found = [(each.code, each.severity, each.node, each.pod) for each in running.job.status.findings]
    pod = "sum-workers-worker-b"
    assert found == [("NodeNotReady", "error", "node-1", pod), ("NodeUnderPressure", "warning", "node-1", pod)]
    assert (
        running.job.status.findings[0].evidence == "node condition Ready=Unknown, NodeStatusUnknown: Kubelet stopped."
    )
    failed = end(running, o.ended("FAILED", TIMEOUT))
    assert [each.code for each in failed.findings][:2] == ["NodeNotReady", "CollectiveTimeout"]
    assert o.after(replace(running, pod_nodes=())).job.status.findings == []
