"""spec.failurePolicy.onDrain: leave a node that is drained, before the drain ends the pods.

The PodDisruptionBudget blocks evictions of ready pods, except of those without which the program continues. The
operator therefore ends the attempt when it observes a cordoned node with one of the others: it records the disruption
with the request to stop the program, waits until the program has saved its state, and releases the cluster. The drain
then continues.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_core.replaceable_pods import find_replaceable_group
from rlt_operator.diagnosis.disruption import FoundDisruption, find_drain
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.stopping import describe_overdue_stop, stop_program
from rlt_operator.observation import Observed, is_in
from rlt_operator.verdict import Verdict


def node_is_drained(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """A node with a ready pod of the job is drained or will be removed: stop the program and end the attempt.

    A drain whose request to stop is recorded completes, also if the node is uncordoned meanwhile.
    """
    stop = observed.stop_request
    cluster = observed.owned_cluster
    if cluster is None or cluster.deleting or cluster.suspend:
        return None
    found = None
    if stop is None:
        found = _find_drain(observed, spec)
    if found is None and (stop is None or stop.reason != Reason.DISRUPTED):
        return None
    if waiting := stop_program(observed, spec, Reason.DISRUPTED, "Leaving a node that is drained", now):
        return replace(waiting, disruption=found)
    message = f"The job leaves a node that is drained.{describe_overdue_stop(observed, spec, now)}"
    ray = observed.ray
    report = (parse_last_report(ray.log) if ray and ray.log else None) or (ray.progress if ray else None)
    conditions = {ConditionType.CLUSTER_READY: build_cluster_ready(observed, spec)}
    failed = replace(fail_job(Reason.DISRUPTED, message, conditions, report), disruption=found)
    return restart_failed_attempt(observed, failed, now)


def _find_drain(observed: Observed, spec: RLTrainingJobSpec) -> FoundDisruption | None:
    """None if the job waits: by its policy, or because it may have no further attempt after a disruption."""
    policy = spec.failure_policy
    disruptions = observed.job.status.disruptions or 0
    if policy.on_drain == "Wait" or (policy.max_disruptions is not None and disruptions >= policy.max_disruptions):
        return None
    replaceable = find_replaceable_group(spec)
    pods = [pod for pod in observed.cluster_pods if not is_in(replaceable, pod)]
    return find_drain(pods, observed.pod_nodes)
