"""What a job waits for before it has a Ray cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_core.children.build import build_children
from rlt_core.children.pod_template import build_template_dry_runs
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.network_status import blocks_start, build_network_status, needs_decision
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import shorten
from rlt_operator.kuberay import dropped
from rlt_operator.lifecycle.fabric_condition import fabric_condition
from rlt_operator.lifecycle.verdict import Verdict, waiting
from rlt_operator.observation import Observed

RUNTIME_INTERVAL_S = 5.0
"""Between looks at a job whose runtime does not exist. (A new runtime also wakes it.)"""
NODES_INTERVAL_S = 5.0
"""Between looks at the nodes for a job that they have nothing for."""

C = ConditionType


def runtime_missing(observed: Observed, now: datetime) -> Verdict | None:
    """Without its runtime a job is only a part of itself."""
    job = observed.job
    assert job.spec
    if job.spec.runtime_ref is None or job.runtime is not None:
        return None
    message = f"There is no RLRuntime {job.spec.runtime_ref.name}: create it, and the job goes on."
    verdict = waiting(Reason.RUNTIME_NOT_FOUND, message, stalled=True)
    missing = {
        C.ACCEPTED: ConditionUpdate("False", Reason.RUNTIME_NOT_FOUND, message),
        C.STALLED: verdict.claims[C.STALLED],
    }
    return replace(verdict, claims=missing, requeue_after=RUNTIME_INTERVAL_S)


def name_taken(observed: Observed, now: datetime) -> Verdict | None:
    """A RayCluster that is not the job's own is never touched."""
    cluster, job = observed.cluster, observed.job
    if cluster is None or cluster.owner_uid == job.uid or cluster.deleting or cluster.owner_kind == "RLTrainingJob":
        return None
    message = f"A RayCluster called {job.name} exists and is not this job's: delete it, or give the job another name."
    return waiting(Reason.NAME_TAKEN, message, stalled=True)


def earlier_cluster(observed: Observed, now: datetime) -> Verdict | None:
    """Two clusters of one name would share a service and count each other's pods: one ends before another starts."""
    cluster = observed.cluster
    if cluster and not cluster.deleting and cluster.owner_uid == observed.job.uid:
        return None
    if cluster is None and not observed.pods:
        return None
    pods = ", ".join(sorted(pod.name for pod in observed.pods)[:3])
    message = f"Waiting for an earlier cluster of this name to end{f' (pods {pods})' if pods else ''}."
    return waiting(Reason.EARLIER_CLUSTER, message)


def kuberay_missing(observed: Observed, now: datetime) -> Verdict | None:
    """Without KubeRay's CRD there can be no RayCluster."""
    if observed.kuberay_installed:
        return None
    message = "This Kubernetes has no RayCluster (ray.io/v1): install KubeRay 1.4 or later, and the job goes on."
    return waiting(Reason.KUBERAY_MISSING, message, stalled=True)


def network_undecided(observed: Observed, now: datetime) -> Verdict | None:
    """What the pods get of their nodes' network is decided and written down before anything is made from it.

    A job that cannot have what it asks for is held, and nothing is taken from anybody meanwhile.
    """
    job, spec = observed.job, observed.job.spec
    assert spec
    if observed.cluster or not needs_decision(job):
        return None
    network = build_network_status(job, spec, observed.nodes)
    if not blocks_start(network, spec):
        verdict = replace(waiting(Reason.CREATING, "The Ray cluster is being created."), requeue_after=0)
    else:
        found = fabric_condition(network)
        verdict = replace(waiting(found.reason, found.message, stalled=True), requeue_after=NODES_INTERVAL_S)
    return replace(verdict, network=network)


def kuberay_too_old(observed: Observed, now: datetime) -> Verdict | None:
    """The RayCluster would lose fields. (What Kubernetes itself does not know, `checks` tell in its own words.)"""
    job, spec, kuberay = observed.job, observed.job.spec, observed.kuberay
    assert spec
    if kuberay is None or observed.cluster or observed.refusal:
        return None
    message = dropped(kuberay, build_ray_cluster(job, spec))
    if message is None:
        return None
    return replace(
        waiting(Reason.KUBERAY_TOO_OLD, shorten(message), stalled=True), check=build_template_dry_runs(job, spec)
    )


def create(observed: Observed, now: datetime) -> Verdict | None:
    """No cluster yet: ask for it. It is not changed afterwards, since a change would only end a training."""
    job, spec = observed.job, observed.job.spec
    assert spec
    if observed.cluster:
        return None
    if observed.refusal:
        verdict = waiting(Reason.CLUSTER_REFUSED, shorten(observed.refusal), stalled=True)
    else:
        verdict = waiting(Reason.CREATING, "The Ray cluster is being created.")
    return replace(verdict, check=build_template_dry_runs(job, spec), apply=build_children(job, spec))
