"""The policies of `plan`: each looks at one situation of a job and decides, or leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Phase
from rlt_operator.children.all_of_them import children
from rlt_operator.children.pod_template import checks
from rlt_operator.children.raycluster import ray_cluster
from rlt_operator.conditions import Claim, condition, is_true
from rlt_operator.deadlines import active_seconds, elapsed
from rlt_operator.diagnosis import crashes, diagnose, shorten
from rlt_operator.entrypoint import entrypoint
from rlt_operator.kuberay import dropped
from rlt_operator.network import claim, decide, holds, undecided
from rlt_operator.observation import Observed, cluster_pods, submission_id, submitted
from rlt_operator.progress import duration, last_report, last_words
from rlt_operator.queueing import waiting_for
from rlt_operator.verdict import SETTLED, Submission, Verdict, cluster_claim, failed, release, remains, waiting

RUNNING_INTERVAL_S = 2.0
"""Between looks at a job that runs: progress in the status is never older than 5 s."""
IDLE_INTERVAL_S = 60.0
"""Between looks at a suspended job."""
RUNTIME_INTERVAL_S = 5.0
"""Between looks at a job whose runtime does not exist. (A new runtime also wakes it.)"""
QUEUE_INTERVAL_S = 5.0
"""Between looks at a job in a queue, for what Kueue says of it. (Its admission also wakes it.)"""
NODES_INTERVAL_S = 5.0
"""Between looks at the nodes for a job that they have nothing for."""
KUBERAY_PATIENCE_S = 15.0
"""A RayCluster that KubeRay has not looked at for so long is worth a word."""

Policy = Callable[[Observed, datetime], Verdict | None]
C = ConditionType


def finished(observed: Observed, now: datetime) -> Verdict | None:
    """A terminal condition is final. What remains is to release the cluster, and to go when the time is up."""
    status, spec = observed.job.status, observed.job.spec
    final = next((condition(status, type) for type in (C.SUCCEEDED, C.FAILED) if is_true(status, type)), None)
    if final is None:
        return None
    claims = {
        C(final.type): Claim("True", final.reason, final.message),
        C.RUNNING: Claim("False", final.reason, "The job has ended."),
    }
    if (accepted := condition(status, C.ACCEPTED)) and accepted.status == "False":
        claims[C.ACCEPTED] = Claim("False", accepted.reason, accepted.message)
    if final.type == C.FAILED:
        claims[C.STALLED] = Claim("True", final.reason, final.message)
    verdict = release(observed, Verdict(status.message or final.message, claims=claims, again_after=None))
    kept_s = spec.ttl_seconds_after_finished if spec and not remains(observed) else None
    assert status.completion_time
    return replace(verdict, delete_job=kept_s is not None and elapsed(status.completion_time, now) >= kept_s)


def invalid(observed: Observed, now: datetime) -> Verdict | None:
    """A spec that contradicts itself fails before anything is made. What was accepted once stays accepted."""
    job = observed.job
    accepted = is_true(job.status, C.ACCEPTED)
    if job.spec is not None and accepted:
        return None
    found = job.findings
    if not found:
        return None
    message = shorten("; ".join(map(str, found)))
    if accepted:
        stalled = Claim("True", Reason.INVALID_SPEC, f"This version of the operator cannot read the spec: {message}")
        old = {type: Claim(c.status, c.reason, c.message) for type in C if (c := condition(job.status, type))}
        return Verdict(stalled.message, claims={**old, C.STALLED: stalled, C.RECONCILING: SETTLED}, again_after=None)
    claim = Claim("True", Reason.INVALID_SPEC, message)
    claims = {
        C.ACCEPTED: Claim("False", Reason.INVALID_SPEC, message),
        C.RUNNING: Claim("False", Reason.INVALID_SPEC, "The job has ended."),
        C.FAILED: claim,
        C.STALLED: claim,
        C.RECONCILING: SETTLED,
    }
    return Verdict(message, Phase.FAILED, claims, again_after=None)


def waited_too_long(observed: Observed, now: datetime) -> Verdict | None:
    """spec.pendingDeadlineSeconds: the cluster is not ready in time, whatever it waits for."""
    job, ray = observed.job, observed.ray
    assert job.spec
    since, limit = job.status.pending_since, job.spec.pending_deadline_seconds
    if since is None or limit is None or job.spec.suspend or elapsed(since, now) < limit:
        return None
    if (ray and ray.job) or submitted(observed) or cluster_claim(observed).status == "True":
        return None
    message = f"The cluster was not ready within spec.pendingDeadlineSeconds, {limit} s: {job.status.message}"
    kept = {type: Claim(c.status, c.reason, c.message) for type in (C.ACCEPTED,) if (c := condition(job.status, type))}
    return failed(Reason.PENDING_DEADLINE_EXCEEDED, shorten(message), kept, None)


def runtime_missing(observed: Observed, now: datetime) -> Verdict | None:
    """Without its runtime a job is only a part of itself."""
    job = observed.job
    assert job.spec
    if job.spec.runtime_ref is None or job.runtime is not None:
        return None
    message = f"There is no RLRuntime {job.spec.runtime_ref.name}: create it, and the job goes on."
    verdict = waiting(Reason.RUNTIME_NOT_FOUND, message, stalled=True)
    missing = {C.ACCEPTED: Claim("False", Reason.RUNTIME_NOT_FOUND, message), C.STALLED: verdict.claims[C.STALLED]}
    return replace(verdict, claims=missing, again_after=RUNTIME_INTERVAL_S)


def ended(observed: Observed, now: datetime) -> Verdict | None:
    """The Ray job came to an end. This is written down first; the next look, then `finished`, releases the cluster."""
    ray, spec = observed.ray, observed.job.spec
    assert spec
    if ray is None or ray.job is None or ray.job.status in ("PENDING", "RUNNING"):
        return None
    if ray.job.status == "STOPPED" and spec.suspend:
        return None
    if ray.job.status != "SUCCEEDED" and observed.cluster and observed.cluster.suspend:
        return None  # its queue has taken the cluster back, and the program ended with it
    report = (last_report(ray.log) if ray.log else None) or ray.progress
    cluster = {C.CLUSTER_READY: cluster_claim(observed), C.RECONCILING: Claim("True", Reason.RELEASING)}
    if ray.job.status == "SUCCEEDED":
        message = "The command ended with exit code 0."
        if report:
            where = f"; the model is in {report.exported_path}" if report.exported_path else ""
            steps = f"{report.step} of {report.total_steps}" if report.total_steps else str(report.step)
            message = f"{steps} steps are done{where}."
        success = Claim("True", Reason.COMPLETED, message)
        claims = {**cluster, C.SUCCEEDED: success, C.RUNNING: Claim("False", Reason.COMPLETED, "The job has ended.")}
        return Verdict(message, Phase.SUCCEEDED, claims, report=report, again_after=0)
    if ray.job.status == "STOPPED":
        return failed(Reason.STOPPED, "The Ray job was stopped by somebody.", cluster, report)
    message = last_words(ray.log or ray.job.message) or "The program failed in silence."
    if crash := crashes(observed):
        message += f"\n{crash}"
    return failed(Reason.PROGRAM_FAILED, message, cluster, report)


def head_lost(observed: Observed, now: datetime) -> Verdict | None:
    """Ray has forgotten a job that it had: its head was replaced."""
    ray = observed.ray
    if ray is None or ray.unreachable or ray.job or not submitted(observed):
        return None
    message = f"The Ray head was replaced in mid-run, and the Ray job {submission_id(observed)} was lost with it."
    if crash := crashes(observed):
        message += f" {crash}"
    return failed(Reason.HEAD_LOST, message, {C.CLUSTER_READY: cluster_claim(observed)}, None)


def suspended(observed: Observed, now: datetime) -> Verdict | None:
    """spec.suspend: the Ray job is stopped and the cluster released. Progress and checkpoints stay."""
    spec = observed.job.spec
    assert spec
    if not spec.suspend:
        return None
    message = "Suspended: the cluster is released. Set spec.suspend to false to go on."
    claims = {
        C.SUSPENDED: Claim("True", Reason.SUSPEND_REQUESTED, message),
        C.RUNNING: Claim("False", Reason.SUSPEND_REQUESTED, "The job is suspended."),
    }
    verdict = Verdict(message, Phase.SUSPENDED, claims, again_after=IDLE_INTERVAL_S)
    if not remains(observed):
        return release(observed, verdict)
    message = "Suspending: the cluster is being released."
    claims[C.SUSPENDED] = Claim("False", Reason.RELEASING, message)
    ray = observed.ray
    alive = ray and ray.job and ray.job.status in ("PENDING", "RUNNING")
    return replace(
        release(observed, Verdict(message, claims=claims)),
        stop=submission_id(observed) if alive else None,
        report=ray.progress if ray else None,
    )


def ran_too_long(observed: Observed, now: datetime) -> Verdict | None:
    """spec.activeDeadlineSeconds: all stretches of running together."""
    spec, status = observed.job.spec, observed.job.status
    assert spec
    limit, ran = spec.active_deadline_seconds, active_seconds(status, now)
    if limit is None or ran < limit:
        return None
    message = f"The training has run for {duration(ran)}: spec.activeDeadlineSeconds is {limit}."
    cluster = {C.CLUSTER_READY: cluster_claim(observed)} if observed.cluster else {}
    report = observed.ray.progress if observed.ray else None
    return failed(Reason.DEADLINE_EXCEEDED, message, cluster, report)


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
    if observed.cluster or not undecided(job):
        return None
    network = decide(job, spec, observed.nodes)
    if not holds(network, spec):
        verdict = replace(waiting(Reason.CREATING, "The Ray cluster is being created."), again_after=0)
    else:
        found = claim(network)
        verdict = replace(waiting(found.reason, found.message, stalled=True), again_after=NODES_INTERVAL_S)
    return replace(verdict, network=network)


def kuberay_too_old(observed: Observed, now: datetime) -> Verdict | None:
    """The RayCluster would lose fields. (What Kubernetes itself does not know, `checks` tell in its own words.)"""
    job, spec, kuberay = observed.job, observed.job.spec, observed.kuberay
    assert spec
    if kuberay is None or observed.cluster or observed.refusal:
        return None
    message = dropped(kuberay, ray_cluster(job, spec))
    if message is None:
        return None
    return replace(waiting(Reason.KUBERAY_TOO_OLD, shorten(message), stalled=True), check=checks(job, spec))


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
    return replace(verdict, check=checks(job, spec), apply=children(job, spec))


def queued(observed: Observed, now: datetime) -> Verdict | None:
    """Kueue has suspended the RayCluster, for the first time or again. A training starts anew once it is admitted."""
    if observed.cluster is None or not observed.cluster.suspend:
        return None
    return replace(waiting(Reason.WAITING_FOR_QUEUE, waiting_for(observed)), again_after=QUEUE_INTERVAL_S)


def running(observed: Observed, now: datetime) -> Verdict | None:
    """Ray has the job, or had it and does not answer just now."""
    ray = observed.ray
    if ray is None:
        return None
    cluster = {C.CLUSTER_READY: cluster_claim(observed)}
    if ray.job is None:
        if not submitted(observed):
            return None
        message = f"Ray's job API does not answer: {ray.unreachable}"
        if diagnosis := diagnose(observed):
            message = f"{diagnosis.message}; {message}"
        return Verdict(message, claims={**cluster, C.RUNNING: Claim("Unknown", Reason.RAY_UNREACHABLE, message)})
    if ray.job.status == "PENDING":
        message = "Ray has the job and is starting it."
        claims = {**cluster, C.RUNNING: Claim("False", Reason.SUBMITTED, message)}
        return Verdict(message, Phase.PROVISIONING, claims)
    message = f"The Ray job is running{f', stage {ray.progress.stage}' if ray.progress else ''}."
    if (diagnosis := diagnose(observed)) and cluster[C.CLUSTER_READY].status == "False":
        message += f" {diagnosis.message}"
    claims = {**cluster, C.RUNNING: Claim("True", Reason.STARTED, "The Ray job is running."), C.RECONCILING: SETTLED}
    return Verdict(message, Phase.RUNNING, claims, report=ray.progress, again_after=RUNNING_INTERVAL_S)


def submit(observed: Observed, now: datetime) -> Verdict | None:
    """All pods are ready and Ray answers: the training can start."""
    job, ray, id = observed.job, observed.ray, submission_id(observed)
    assert job.spec
    assert id
    claim = cluster_claim(observed)
    if ray is None or claim.status == "False":
        return None
    if ray.unreachable:
        message = f"The cluster is ready; waiting for Ray's job API: {ray.unreachable}"
        claims = {C.CLUSTER_READY: claim, C.RUNNING: Claim("False", Reason.WAITING_FOR_CLUSTER, message)}
        return Verdict(message, Phase.PROVISIONING, claims)
    message = (
        f"Ray does not take the job: {shorten(observed.refusal)}" if observed.refusal else "The Ray job is submitted."
    )
    reason = Reason.SUBMISSION_REFUSED if observed.refusal else Reason.SUBMITTED
    return Verdict(
        message,
        Phase.PROVISIONING,
        {C.CLUSTER_READY: claim, C.RUNNING: Claim("False", reason, message)},
        submit=Submission(id, entrypoint(job, job.spec), {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}),
        again_after=0.5,
    )


def provisioning(observed: Observed, now: datetime) -> Verdict | None:
    """The cluster is on its way, or something holds it up. A cause does not fail the job: it may pass."""
    assert observed.cluster
    pods = cluster_pods(observed)
    if diagnosis := diagnose(observed):
        verdict = waiting(diagnosis.reason, diagnosis.message, stalled=diagnosis.stalled)
        return replace(verdict, phase=Phase.PROVISIONING if diagnosis.placed else Phase.PENDING)
    if not pods and not observed.cluster.seen_by_kuberay:
        if (now - observed.cluster.created).total_seconds() > KUBERAY_PATIENCE_S:
            message = (
                "KubeRay has not looked at the RayCluster: is its operator running, and does it watch this namespace?"
            )
            return waiting(Reason.KUBERAY_SILENT, message)
        return waiting(Reason.CREATING, "The Ray cluster is being created.")
    claim = cluster_claim(observed)
    return replace(waiting(claim.reason, claim.message), phase=Phase.PROVISIONING if pods else Phase.PENDING)


POLICIES: list[Policy] = [
    finished,
    invalid,
    waited_too_long,
    runtime_missing,
    ended,
    suspended,
    ran_too_long,
    name_taken,
    earlier_cluster,
    kuberay_missing,
    network_undecided,
    kuberay_too_old,
    create,
    queued,
    head_lost,
    running,
    submit,
    provisioning,
]
