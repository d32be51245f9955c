"""Disruptions that do not end the program themselves: the operator ends the attempt.

A node is drained (spec.failurePolicy.onDrain): a PodDisruptionBudget blocks evictions of ready pods, except of those
without which the program continues. The operator ends the attempt when it observes a cordoned node with one of the
others, and the drain then continues. Or a lost pod leaves fewer than minReplicas of its group.

The operator records the disruption with the request to stop the program, waits until the program has saved its state,
and releases the cluster.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_operator.diagnosis.disruption import FoundDisruption, find_disruption, find_drain
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.stopping import describe_overdue_stop, is_program_running, stop_program
from rlt_operator.memory.disruption import list_pods
from rlt_operator.observation import Observed, Pod, is_in
from rlt_operator.verdict import Verdict


def attempt_is_disrupted(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """A node with a ready pod of the job is drained or will be removed, or too few pods generate: stop the program and
    end the attempt.

    A stop whose request is recorded completes, also if the node is uncordoned or the pod replaced meanwhile.
    """
    stop = observed.stop_request
    cluster = observed.owned_cluster
    if cluster is None or cluster.deleting or cluster.suspend:
        return None
    found = None
    if stop is None and _allows_disruption(observed, spec):
        found = _find_drain(observed, spec) or _find_loss(observed, spec)
    if found is None and (stop is None or stop.reason != Reason.DISRUPTED):
        return None
    if waiting := stop_program(observed, spec, Reason.DISRUPTED, "Ending the attempt", now):
        return replace(waiting, disruption=found)
    message = f"The attempt ends by a disruption.{describe_overdue_stop(observed, spec, now)}"
    ray = observed.ray
    report = (parse_last_report(ray.log) if ray and ray.log else None) or (ray.progress if ray else None)
    conditions = {ConditionType.CLUSTER_READY: build_cluster_ready(observed, spec)}
    failed = replace(fail_job(Reason.DISRUPTED, message, conditions, report), disruption=found)
    return restart_failed_attempt(observed, failed, now)


def _allows_disruption(observed: Observed, spec: RLTrainingJobSpec) -> bool:
    """Whether the job may have a further attempt after a disruption."""
    maximum = spec.failure_policy.max_disruptions
    return maximum is None or (observed.job.status.disruptions or 0) < maximum


def _find_drain(observed: Observed, spec: RLTrainingJobSpec) -> FoundDisruption | None:
    if spec.failure_policy.on_drain == "Wait":
        return None
    return find_drain(_list_protected(observed, spec), observed.pod_nodes)


def _list_protected(observed: Observed, spec: RLTrainingJobSpec) -> list[Pod]:
    """The pods whose evictions a PodDisruptionBudget blocks. The one of minReplicas blocks none for long while a pod of
    the group starts elsewhere."""
    group = find_replaceable_group(spec)
    pods = [pod for pod in observed.cluster_pods if not is_in(group, pod)]
    replaceable = [pod for pod in observed.cluster_pods if is_in(group, pod)]
    if group is None or group.min_replicas is None or len(replaceable) < group.replicas:
        return pods
    starts = any(not pod.ready and pod.unschedulable is None for pod in replaceable)
    has_spare = sum(pod.ready for pod in replaceable) > group.min_replicas
    return pods if starts or has_spare else [*pods, *replaceable]


def _find_loss(observed: Observed, spec: RLTrainingJobSpec) -> FoundDisruption | None:
    """The lost pod, if it leaves fewer than minReplicas in its group. A pod that runs counts, also if it is not ready:
    a slow probe ends no attempt."""
    group = find_replaceable_group(spec)
    minimum = group.min_replicas if group else None
    if group is None or minimum is None or not is_program_running(observed):
        return None
    running = sum(is_in(group, pod) and pod.phase == "Running" for pod in observed.cluster_pods)
    lost = find_disruption([pod for pod in list_pods(observed) if is_in(group, pod)])
    if lost is None or running >= minimum:
        return None
    few = f"{running} of {group.replicas} pods of worker group {group.name} run, and minReplicas is {minimum}"
    return replace(lost, message=few)
