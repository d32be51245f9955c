"""From a valid spec to an admitted RayCluster: runtime, name, KubeRay, fabric decision, creation and queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.network import NetworkStatus
from rlt_core.children.build import build_children
from rlt_core.children.pod_template import build_template_dry_runs
from rlt_core.children.programs import build_programs
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.kuberay import KUBERAY_MINIMUM, describe_lost_fields, describe_replaced_field
from rlt_core.network_status import blocks_start, build_network_status, needs_decision
from rlt_operator.conditions import ConditionUpdate, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.lifecycle.cluster_ready import describe_excess, describe_queue
from rlt_operator.lifecycle.shared_verdicts import fail_job, wait_for_cluster
from rlt_operator.observation import Observed
from rlt_operator.verdict import SETTLED, Verdict

RUNTIME_INTERVAL_S = 10.0
"""Requeue interval of a job whose RLRuntime does not exist. A new RLRuntime also wakes the job."""
JOB_INTERVAL_S = 10.0
"""Requeue interval of a job that waits for the end of another job, which the cache of the operator has."""
NODES_INTERVAL_S = 10.0
"""Requeue interval of a job that waits for suitable nodes."""
CRD_INTERVAL_S = 10.0
"""Requeue interval of a job that waits for a CRD that the operator does not watch."""
QUEUE_INTERVAL_S = 10.0
"""Requeue interval of a queued job, to update Kueue's message. The admission itself also wakes the job."""

CREATED_LATER = "PodDisruptionBudget"
"""Kind of the child that follows when Ray has the program (reconcile/plan.py)."""

C = ConditionType


def runtime_not_found(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The RLRuntime that the job refers to does not exist: the spec is incomplete without it."""
    if spec.runtime_ref is None or observed.job.runtime is not None:
        return None
    message = f"spec.runtimeRef.name: RLRuntime {spec.runtime_ref.name} does not exist. Create it to start the job."
    verdict = wait_for_cluster(Reason.RUNTIME_NOT_FOUND, message, stalled=True)
    conditions = {
        C.ACCEPTED: ConditionUpdate("False", Reason.RUNTIME_NOT_FOUND, message),
        C.STALLED: verdict.conditions[C.STALLED],
    }
    return replace(verdict, conditions=conditions, requeue_after=RUNTIME_INTERVAL_S)


def checkpoint_missing(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The job that this one resumes from has no checkpoint for it: wait until it has ended, or fail.

    When the checkpoint is found, the resolved spec has its path. No child is created before the status holds it.
    """
    missing = observed.missing_checkpoint
    if missing is None:
        return None
    reason = Reason.CHECKPOINT_NOT_FOUND if missing.is_final else Reason.WAITING_FOR_JOB
    if missing.is_final:
        verdict = fail_job(reason, missing.message, {C.RECONCILING: SETTLED}, None)
    else:
        verdict = wait_for_cluster(reason, missing.message, stalled=missing.is_stalled)
    conditions = {**verdict.conditions, C.ACCEPTED: ConditionUpdate("False", reason, missing.message)}
    return replace(verdict, conditions=conditions, requeue_after=None if missing.is_final else JOB_INTERVAL_S)


def cluster_name_taken(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """A RayCluster of this name exists and does not belong to an RLTrainingJob. The operator does not change it."""
    cluster = observed.cluster
    job = observed.job
    if cluster is None or cluster.owner_uid == job.uid or cluster.deleting or cluster.owner_kind == "RLTrainingJob":
        return None
    message = (
        f"RayCluster {job.name} exists and does not belong to this job. Delete it, or create the job with another name."
    )
    return wait_for_cluster(Reason.NAME_TAKEN, message, stalled=True)


def previous_cluster_terminating(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """A previous cluster still exists. Two clusters of one name would share a service and count each other's pods."""
    cluster = observed.owned_cluster
    if cluster and not cluster.deleting:
        return None
    left = observed.job_pods
    if observed.cluster is None and not left:
        return None
    pods = ", ".join(sorted(pod.name for pod in left)[:3])
    message = f"Waiting for the previous cluster of this name to terminate{f' (pods {pods})' if pods else ''}."
    return wait_for_cluster(Reason.EARLIER_CLUSTER, message)


def kuberay_missing(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """KubeRay's CRD is not installed."""
    if observed.kuberay_installed:
        return None
    message = (
        f"The RayCluster CRD (ray.io/v1) is not installed. Install KubeRay {KUBERAY_MINIMUM} or later to start the job."
    )
    return wait_for_cluster(Reason.KUBERAY_MISSING, message, stalled=True)


def agent_sandbox_missing(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The sandbox pods need the CRD of agent-sandbox, which is not installed."""
    if observed.agent_sandbox_installed:
        return None
    message = (
        "spec.rollout.multiTurn.sandbox.provider: AgentSandbox needs the CRD sandboxes.agents.x-k8s.io (v1beta1), "
        "which is not installed. Install agent-sandbox (tested with 0.5.6), or create the job with provider: Pods."
    )
    verdict = wait_for_cluster(Reason.AGENT_SANDBOX_MISSING, message, stalled=True)
    return replace(verdict, requeue_after=CRD_INTERVAL_S)


def fabric_not_decided(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The fabric is not decided, or the decision blocks the start. No child is created before the status holds it."""
    job = observed.job
    if observed.cluster or not needs_decision(job):
        return None
    network = build_network_status(job, spec, observed.nodes)
    if not blocks_start(network, spec):
        verdict = wait_for_cluster(Reason.CREATING, "The Ray cluster is being created.")
        return replace(verdict, network=network, requeue_after=0)
    verified = build_fabric_verified(network)
    verdict = wait_for_cluster(verified.reason, verified.message, stalled=True)
    return replace(verdict, network=network, requeue_after=NODES_INTERVAL_S)


def kuberay_too_old(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The RayCluster CRD lacks fields that the job needs. The dry run reports fields that Kubernetes itself lacks."""
    kuberay = observed.kuberay
    if kuberay is None or observed.cluster or observed.rejection:
        return None
    cluster = build_ray_cluster(observed.job, spec)
    if replaced := describe_replaced_field(kuberay, cluster):
        return wait_for_cluster(Reason.KUBERAY_TOO_NEW, truncate(replaced), stalled=True)
    message = describe_lost_fields(kuberay, cluster)
    if message is None:
        return None
    verdict = wait_for_cluster(Reason.KUBERAY_TOO_OLD, truncate(message), stalled=True)
    return replace(verdict, dry_run=build_template_dry_runs(observed.job, spec))


def accelerators_in_use(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The namespace has too many accelerators in use for the job: wait until other RayClusters are gone."""
    use = observed.namespace_use
    if use is None or use.fits or observed.cluster:
        return None
    message = describe_excess(use)
    if use.needed <= use.maximum:
        message += f", of which other Ray clusters have {use.used}. The job starts when enough of them have ended."
        return replace(wait_for_cluster(Reason.WAITING_FOR_ACCELERATORS, message), requeue_after=QUEUE_INTERVAL_S)
    message += f". Use at most {use.maximum}, or create the job with another runtime."
    return wait_for_cluster(Reason.WAITING_FOR_ACCELERATORS, message, stalled=True)


def cluster_missing(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """No RayCluster exists: create the children. They do not change later, because a change would end the training."""
    if observed.cluster:
        return None
    if rejection := observed.rejection:
        reason = Reason.NAME_TAKEN if rejection.reason == Reason.NAME_TAKEN else Reason.CLUSTER_REJECTED
        verdict = wait_for_cluster(reason, truncate(rejection.message), stalled=rejection.stalled)
    else:
        verdict = wait_for_cluster(Reason.CREATING, "The Ray cluster is being created.")
    job = observed.job
    programs = (build_programs(job.namespace),) if observed.programs_missing else ()
    children = (each for each in build_children(job, spec, observed.access) if each["kind"] != CREATED_LATER)
    return replace(verdict, dry_run=build_template_dry_runs(job, spec), apply=(*programs, *children))


def waiting_for_queue(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The RayCluster is suspended: Kueue has not admitted it, or has evicted it. After that the training restarts.

    Only Kueue writes spec.suspend of the RayCluster.
    """
    if observed.cluster is None or not observed.cluster.suspend:
        return None
    verdict = wait_for_cluster(Reason.WAITING_FOR_QUEUE, describe_queue(observed))
    return replace(verdict, requeue_after=QUEUE_INTERVAL_S)


def build_fabric_verified(network: NetworkStatus) -> ConditionUpdate:
    """FabricVerified, from the fabric decision."""
    decision = f"Profile {network.profile}, fabric {network.fabric}"
    if network.rejection:
        return ConditionUpdate("False", network.rejection.code, _to_sentence(network.rejection.message))
    if not network.agree:
        return ConditionUpdate("False", Reason.NODES_DISAGREE, _to_sentence(network.warnings[0]))
    if network.candidates == 0:
        return ConditionUpdate("Unknown", Reason.NO_NODES, f"{decision}; no node matches a worker yet.")
    nodes = f"{network.candidates} node{'s' * (network.candidates > 1)}"
    return ConditionUpdate("True", Reason.FABRIC_FOUND, f"{decision}, on {nodes}.")


def build_admitted(observed: Observed) -> ConditionUpdate:
    """The condition Admitted of a job with a queue. It keeps its value when the job has ended."""
    if observed.job.has_ended and (kept := keep_conditions(observed.job.status, C.ADMITTED)):
        return kept[C.ADMITTED]
    queue = observed.job.queue
    cluster = observed.owned_cluster
    if cluster is None or cluster.deleting:
        message = f"The job enters queue {queue} when its RayCluster is created."
        return ConditionUpdate("False", Reason.WAITING_FOR_QUEUE, message)
    if cluster.suspend is None:
        message = (
            f"Kueue has not reconciled the RayCluster, which starts without queue {queue}. Check that Kueue is running."
        )
        return ConditionUpdate("Unknown", Reason.QUEUE_SILENT, message)
    if cluster.suspend:
        return ConditionUpdate("False", Reason.WAITING_FOR_QUEUE, describe_queue(observed))
    return ConditionUpdate("True", Reason.QUOTA_RESERVED, f"Queue {queue} has admitted the job.")


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
