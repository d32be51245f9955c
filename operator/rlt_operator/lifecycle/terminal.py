"""The ends of a job: its own, those that a limit or a loss bring about, and what is left to do after them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Phase
from rlt_operator.conditions import ConditionUpdate, condition, is_true
from rlt_operator.diagnosis.pods import crashes, shorten
from rlt_operator.diagnosis.progress import duration, last_report, last_words
from rlt_operator.lifecycle.deadlines import active_seconds, elapsed
from rlt_operator.lifecycle.verdict import SETTLED, Verdict, cluster_condition, failed, release, remains, was_stopped
from rlt_operator.observation import Observed, preflight_id, preflighted, submission_id, submitted

C = ConditionType


def finished(observed: Observed, now: datetime) -> Verdict | None:
    """A terminal condition is final. What remains is to release the cluster, and to go when the time is up."""
    status, spec = observed.job.status, observed.job.spec
    final = next((condition(status, type) for type in (C.SUCCEEDED, C.FAILED) if is_true(status, type)), None)
    if final is None:
        return None
    claims = {
        C(final.type): ConditionUpdate("True", final.reason, final.message),
        C.RUNNING: ConditionUpdate("False", final.reason, "The job has ended."),
    }
    if (accepted := condition(status, C.ACCEPTED)) and accepted.status == "False":
        claims[C.ACCEPTED] = ConditionUpdate("False", accepted.reason, accepted.message)
    if final.type == C.FAILED:
        claims[C.STALLED] = ConditionUpdate("True", final.reason, final.message)
    verdict = release(observed, Verdict(status.message or final.message, claims=claims, requeue_after=None))
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
        stalled = ConditionUpdate(
            "True", Reason.INVALID_SPEC, f"This version of the operator cannot read the spec: {message}"
        )
        old = {type: ConditionUpdate(c.status, c.reason, c.message) for type in C if (c := condition(job.status, type))}
        return Verdict(stalled.message, claims={**old, C.STALLED: stalled, C.RECONCILING: SETTLED}, requeue_after=None)
    claim = ConditionUpdate("True", Reason.INVALID_SPEC, message)
    claims = {
        C.ACCEPTED: ConditionUpdate("False", Reason.INVALID_SPEC, message),
        C.RUNNING: ConditionUpdate("False", Reason.INVALID_SPEC, "The job has ended."),
        C.FAILED: claim,
        C.STALLED: claim,
        C.RECONCILING: SETTLED,
    }
    return Verdict(message, Phase.FAILED, claims, requeue_after=None)


def waited_too_long(observed: Observed, now: datetime) -> Verdict | None:
    """spec.pendingDeadlineSeconds: the cluster is not ready in time, whatever it waits for."""
    job, ray = observed.job, observed.ray
    assert job.spec
    since, limit = job.status.pending_since, job.spec.pending_deadline_seconds
    if since is None or limit is None or job.spec.suspend or elapsed(since, now) < limit:
        return None
    if (ray and ray.job) or submitted(observed) or cluster_condition(observed).status == "True":
        return None
    message = f"The cluster was not ready within spec.pendingDeadlineSeconds, {limit} s: {job.status.message}"
    kept = {
        type: ConditionUpdate(c.status, c.reason, c.message)
        for type in (C.ACCEPTED,)
        if (c := condition(job.status, type))
    }
    return failed(Reason.PENDING_DEADLINE_EXCEEDED, shorten(message), kept, None)


def ended(observed: Observed, now: datetime) -> Verdict | None:
    """The Ray job came to an end. This is written down first; the next look, then `finished`, releases the cluster."""
    ray, spec = observed.ray, observed.job.spec
    assert spec
    if ray is None or ray.job is None or ray.job.status in ("PENDING", "RUNNING"):
        return None
    if ray.job.status == "STOPPED" and (spec.suspend or was_stopped(observed)):
        return None
    if ray.job.status != "SUCCEEDED" and observed.cluster and observed.cluster.suspend:
        return None  # its queue has taken the cluster back, and the program ended with it
    report = (last_report(ray.log) if ray.log else None) or ray.progress
    cluster = {C.CLUSTER_READY: cluster_condition(observed), C.RECONCILING: ConditionUpdate("True", Reason.RELEASING)}
    if ray.job.status == "SUCCEEDED":
        message = "The command ended with exit code 0."
        if report:
            where = f"; the model is in {report.exported_path}" if report.exported_path else ""
            steps = f"{report.step} of {report.total_steps}" if report.total_steps else str(report.step)
            message = f"{steps} steps are done{where}."
        success = ConditionUpdate("True", Reason.COMPLETED, message)
        claims = {
            **cluster,
            C.SUCCEEDED: success,
            C.RUNNING: ConditionUpdate("False", Reason.COMPLETED, "The job has ended."),
        }
        return Verdict(message, Phase.SUCCEEDED, claims, report=report, requeue_after=0)
    if ray.job.status == "STOPPED":
        return failed(Reason.STOPPED, "The Ray job was stopped by somebody.", cluster, report)
    message = last_words(ray.log or ray.job.message) or "The program failed in silence."
    if crash := crashes(observed):
        message += f"\n{crash}"
    return failed(Reason.PROGRAM_FAILED, message, cluster, report)


def ran_too_long(observed: Observed, now: datetime) -> Verdict | None:
    """spec.activeDeadlineSeconds: all stretches of running together."""
    spec, status = observed.job.spec, observed.job.status
    assert spec
    limit, ran = spec.active_deadline_seconds, active_seconds(status, now)
    if limit is None or ran < limit:
        return None
    message = f"The training has run for {duration(ran)}: spec.activeDeadlineSeconds is {limit}."
    cluster = {C.CLUSTER_READY: cluster_condition(observed)} if observed.cluster else {}
    report = observed.ray.progress if observed.ray else None
    return failed(Reason.DEADLINE_EXCEEDED, message, cluster, report)


def head_lost(observed: Observed, now: datetime) -> Verdict | None:
    """Ray has forgotten a job that it had: its head was replaced."""
    ray = observed.ray
    if ray is None or ray.unreachable or ray.job:
        return None
    if not submitted(observed) and (ray.preflight or not preflighted(observed)):
        return None
    lost = submission_id(observed) if submitted(observed) else preflight_id(observed)
    message = f"The Ray head was replaced in mid-run, and the Ray job {lost} was lost with it."
    if crash := crashes(observed):
        message += f" {crash}"
    return failed(Reason.HEAD_LOST, message, {C.CLUSTER_READY: cluster_condition(observed)}, None)
