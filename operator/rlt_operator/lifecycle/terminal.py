"""The end of a job: its program ends, it is cancelled or invalid, its head is lost; then cleanup and TTL."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_core import names
from rlt_operator.conditions import ConditionUpdate, find_condition, is_true, keep_conditions
from rlt_operator.diagnosis.pods import describe_crashes, truncate
from rlt_operator.diagnosis.progress import extract_error, find_signal, parse_last_report
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.kept_cluster import keep_cluster
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job, release_cluster
from rlt_operator.lifecycle.stopping import describe_overdue_stop, stop_program
from rlt_operator.memory.clocks import count_kept_seconds, count_seconds_since
from rlt_operator.observation import Observed
from rlt_operator.verdict import SETTLED, Verdict

STOPS_ATTEMPT = (Reason.DEADLINE_EXCEEDED, Reason.NO_PROGRESS, Reason.DISRUPTED)
"""Reasons for which the operator stops a program whose exit code then does not count."""

C = ConditionType


def job_is_finished(observed: Observed, now: datetime) -> Verdict | None:
    """Succeeded or Failed is True, which is final: release the cluster, and delete the job after its TTL."""
    status = observed.job.status
    spec = observed.job.spec
    outcomes = [outcome for outcome in (C.SUCCEEDED, C.FAILED) if is_true(status, outcome)]
    final = find_condition(status, outcomes[0]) if outcomes else None
    if final is None:
        return None
    conditions = {
        C(final.type): ConditionUpdate("True", final.reason, final.message),
        **keep_conditions(status, C.RUNNING),  # it has another reason if the evidence explains the failure
    }
    if (accepted := find_condition(status, C.ACCEPTED)) and accepted.status == "False":
        conditions |= keep_conditions(status, C.ACCEPTED)
    if final.type == C.FAILED:
        conditions[C.STALLED] = ConditionUpdate("True", final.reason, final.message)
    if kept := keep_cluster(observed, now):
        ready, left = kept
        conditions |= {C.CLUSTER_READY: ready, C.RECONCILING: SETTLED}
        return Verdict(f"{final.message} {ready.message}", conditions=conditions, requeue_after=left)
    verdict = Verdict(final.message, conditions=conditions, requeue_after=None)
    ttl = spec.ttl_seconds_after_finished if spec and observed.is_released else None
    ended = count_seconds_since(status.completion_time, now) if status.completion_time else 0
    expired = ttl is not None and ended >= ttl + count_kept_seconds(spec, status)
    return replace(release_cluster(observed, verdict), delete_job=bool(expired))


def cancellation_requested(observed: Observed, now: datetime) -> Verdict | None:
    """The job has the annotation rlt.dev/cancel: stop its program. The job fails in any state, and no attempt follows.

    A job whose spec this operator cannot read fails at once, because its RAY_JOB_STOP_WAIT_TIME_S is unknown.
    """
    job = observed.job
    stop = observed.stop_request
    cancelled = job.cancel_requested or (stop is not None and stop.reason == Reason.CANCELLED)
    never_accepted = job.findings and not is_true(job.status, C.ACCEPTED)
    if not cancelled or never_accepted:  # an invalid spec fails the job by itself
        return None
    if job.spec and (waiting := stop_program(observed, job.spec, Reason.CANCELLED, "Canceling", now)):
        return waiting
    message = f"The job was cancelled by its annotation {names.CANCEL_ANNOTATION}."
    if job.spec:
        message += describe_overdue_stop(observed, job.spec, now)
    kept = keep_conditions(job.status, C.ACCEPTED, C.CLUSTER_READY)
    return fail_job(Reason.CANCELLED, message, kept, observed.ray.progress if observed.ray else None)


def spec_is_invalid(observed: Observed, now: datetime) -> Verdict | None:
    """An invalid spec fails the job before any child is created. A spec that was accepted once stays accepted."""
    job = observed.job
    status = observed.job.status
    accepted = is_true(status, C.ACCEPTED)
    if not job.findings or (job.spec is not None and accepted):
        return None
    message = truncate("; ".join(map(str, job.findings)))
    if accepted:
        message = f"This version of the operator cannot read the spec: {message}"
        stalled = ConditionUpdate("True", Reason.INVALID_SPEC, message)
        conditions = {**keep_conditions(status, *C), C.STALLED: stalled, C.RECONCILING: SETTLED}
        return Verdict(message, conditions=conditions, requeue_after=None)
    verdict = fail_job(Reason.INVALID_SPEC, message, {C.RECONCILING: SETTLED}, None)
    rejected = ConditionUpdate("False", Reason.INVALID_SPEC, message)
    return replace(verdict, conditions={**verdict.conditions, C.ACCEPTED: rejected}, requeue_after=None)


def program_ended(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The Ray job has ended: record the result. The next reconciliation releases the cluster (`job_is_finished`)."""
    ray = observed.ray
    if ray is None or ray.job is None or ray.job.status in ("PENDING", "RUNNING"):
        return None
    stop = observed.stop_request
    if ray.job.status == "STOPPED" and (spec.suspend or stop):
        return None
    if ray.job.status == "FAILED" and stop and stop.reason in STOPS_ATTEMPT:
        return None
    if ray.job.status != "SUCCEEDED" and observed.cluster and observed.cluster.suspend:
        return None  # Kueue evicted the cluster, which ended the program
    report = (parse_last_report(ray.log) if ray.log else None) or ray.progress
    conditions = {
        C.CLUSTER_READY: build_cluster_ready(observed, spec),
        C.RECONCILING: ConditionUpdate("True", Reason.RELEASING),
    }
    if ray.job.status == "SUCCEEDED":
        message = _describe_success(report)
        conditions[C.SUCCEEDED] = ConditionUpdate("True", Reason.COMPLETED, message)
        conditions[C.RUNNING] = ConditionUpdate("False", Reason.COMPLETED, "The job has ended.")
        return Verdict(message, Phase.SUCCEEDED, conditions, report=report, requeue_after=0)
    if ray.job.status == "STOPPED":
        stopped = fail_job(Reason.STOPPED, "The Ray job was stopped outside rlt.", conditions, report)
        return restart_failed_attempt(observed, stopped, now)
    message = extract_error(ray.log or ray.job.message) or "The program exited without an error message."
    if ray.log and (name := find_signal(ray.job.message)):
        message = f"{name} has ended the program. Its last output: {message}"
    if crash := describe_crashes(observed):
        message += f"\n{crash}"
    return restart_failed_attempt(observed, fail_job(Reason.PROGRAM_FAILED, message, conditions, report), now)


def head_lost(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The head that accepted a Ray job was replaced, or does not have the job any more."""
    ray = observed.ray
    lost = _find_accepted_id(observed)
    if lost is None or (ray and (ray.job or (ray.latest and not observed.is_submitted))):
        return None
    if not observed.is_head_replaced and (ray is None or ray.unreachable or not _awaits_answer(observed)):
        return None
    message = f"The Ray head was replaced during the run, and Ray job {lost} was lost."
    if crash := describe_crashes(observed):
        message += f" {crash}"
    failed = fail_job(Reason.HEAD_LOST, message, {C.CLUSTER_READY: build_cluster_ready(observed, spec)}, None)
    return restart_failed_attempt(observed, failed, now)


def _find_accepted_id(observed: Observed) -> str | None:
    """Id of the Ray job that the head has accepted last."""
    job_id = observed.submission_id
    attempt = observed.attempt
    if observed.is_submitted:
        return job_id
    if observed.is_preflight_submitted:
        return observed.preflight_id
    return names.step_id(job_id, attempt.prepare_step) if job_id and attempt and attempt.prepare_step else None


def _awaits_answer(observed: Observed) -> bool:
    """Whether the head has accepted a Ray job whose result is not recorded."""
    return observed.is_submitted or observed.is_preflight_submitted or observed.is_step_submitted


def _describe_success(report: ProgressReport | None) -> str:
    if report is None:
        return "The command exited with code 0."
    steps = f"{report.step} of {report.total_steps}" if report.total_steps else str(report.step)
    return f"{steps} steps are done{f'; the model is in {report.exported_path}' if report.exported_path else ''}."
