"""From what is observed to what to do: pure and total.

Only the status of the job carries state, so that the operator can stop at any moment and continue from any state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rlt_api.spec.job_spec import OPERATOR, RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import CurrentAttempt, Phase, RLTrainingJobStatus
from rlt_core.children.config_map import build_config_map
from rlt_core.children.disruption_budget import build_disruption_budgets
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.children.programs import build_programs, name_programs
from rlt_core.children.sandboxes import build_sandbox_pool, get_sandbox
from rlt_core.job import Job, Manifest, identify
from rlt_core.kubernetes.fair_queue import Urgency
from rlt_operator.conditions import Event, build_events, build_rule_events, find_condition, is_true
from rlt_operator.lifecycle.admission import (
    accelerators_in_use,
    agent_sandbox_missing,
    checkpoint_missing,
    cluster_missing,
    cluster_name_taken,
    fabric_not_decided,
    kuberay_missing,
    kuberay_too_old,
    previous_cluster_terminating,
    runtime_not_found,
    waiting_for_queue,
)
from rlt_operator.lifecycle.deadlines import active_deadline_exceeded, pending_deadline_exceeded
from rlt_operator.lifecycle.disrupted import attempt_is_disrupted
from rlt_operator.lifecycle.findings import set_findings
from rlt_operator.lifecycle.in_place import earlier_execution_remains, execution_delayed
from rlt_operator.lifecycle.independent_conditions import set_independent_conditions
from rlt_operator.lifecycle.newer_fields import newer_fields_given
from rlt_operator.lifecycle.no_progress import training_without_progress
from rlt_operator.lifecycle.preflight import preflight_pending
from rlt_operator.lifecycle.preparation import preparation_pending
from rlt_operator.lifecycle.provisioning import cluster_not_ready, program_not_submitted
from rlt_operator.lifecycle.rejections import set_rejection
from rlt_operator.lifecycle.restarts import attempt_failed, restart_delayed
from rlt_operator.lifecycle.run_record import FoundRecord, find_record
from rlt_operator.lifecycle.running import job_is_suspended, program_running
from rlt_operator.lifecycle.scaled import set_scaling
from rlt_operator.lifecycle.terminal import (
    cancellation_requested,
    head_lost,
    job_is_finished,
    program_ended,
    spec_is_invalid,
)
from rlt_operator.manifests import parse_config
from rlt_operator.memory.attempts import track_attempt
from rlt_operator.memory.clocks import count_seconds_to_deadline
from rlt_operator.memory.usage import count_usage, has_released
from rlt_operator.observation import Config, Observed
from rlt_operator.reconcile.starting_pods import count_seconds_to_write
from rlt_operator.reconcile.status import build_status, cut_status, keep_resolved_spec
from rlt_operator.scaling import Scaling
from rlt_operator.verdict import Submission, Verdict

Step = Callable[[Observed, datetime], Verdict | None]
ReadyStep = Callable[[Observed, RLTrainingJobSpec, datetime], Verdict | None]
ReportUpdate = Callable[[Observed, Verdict, datetime], Verdict]

STEPS: list[Step] = [
    job_is_finished,
    cancellation_requested,
    spec_is_invalid,
]
"""The lifecycle steps for every job. Each handles one situation and returns a verdict, or None in another situation."""

READY_STEPS: list[ReadyStep] = [
    pending_deadline_exceeded,
    runtime_not_found,
    checkpoint_missing,
    attempt_failed,
    earlier_execution_remains,
    program_ended,
    job_is_suspended,
    active_deadline_exceeded,
    training_without_progress,
    attempt_is_disrupted,
    cluster_name_taken,
    previous_cluster_terminating,
    restart_delayed,
    newer_fields_given,
    kuberay_missing,
    agent_sandbox_missing,
    fabric_not_decided,
    kuberay_too_old,
    accelerators_in_use,
    cluster_missing,
    waiting_for_queue,
    head_lost,
    program_running,
    execution_delayed,
    preparation_pending,
    preflight_pending,
    program_not_submitted,
    cluster_not_ready,
]
"""The steps for a job with a valid spec, after STEPS."""

RELEASED = (Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED)
"""Phases of a job that has released its pods, or is about to."""

REPORT_UPDATES: list[ReportUpdate] = [
    set_findings,
    set_independent_conditions,
    set_rejection,
    set_scaling,
]
"""Applied in this order to what the verdict reports. The last one alone adds an action, on which no step decides."""


@dataclass(frozen=True)
class Plan:
    """What `apply` does, in this order, and when to requeue the job."""

    dry_run: tuple[TemplateDryRun, ...] = ()
    """Pod templates to validate by a dry run before anything is applied."""
    apply: tuple[Manifest, ...] = ()
    """Objects to apply."""
    scale: Scaling | None = None
    """The number of pods to set in a group of the RayCluster."""
    submit: Submission | None = None
    """The Ray job to submit."""
    stop: str | None = None
    """Id of the Ray job to stop."""
    record: FoundRecord | None = None
    """The record of the run to store, before the RayCluster is deleted."""
    delete_cluster: str | None = None
    """Uid of the RayCluster to delete."""
    delete_job: bool = False
    """Whether to delete the job."""
    status: RLTrainingJobStatus | None = None
    """The new status; None if it has not changed."""
    events: tuple[Event, ...] = ()
    """Transitions to report after the status is written."""
    requeue_after: float | None = None
    """Seconds until the next reconciliation without a watch event; None if only a watch event starts it."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about the job. Nothing for a job that is being deleted or that another controller manages."""
    job = observed.job
    if job.deleting or job.managed_by != OPERATOR:
        return Plan()
    observed = track_attempt(observed)
    verdict = decide(observed, now)
    for update in REPORT_UPDATES:
        verdict = update(observed, verdict, now)
    if verdict.delete_job:
        return Plan(delete_job=True)
    status = build_status(observed, verdict, now)
    if status != job.status or has_released(observed):  # otherwise, the usage alone causes no write
        status = cut_status(status.model_copy(update={"usage": count_usage(observed, verdict, now)}))
    if verdict.acts and job.status.resolved_spec is None and status.resolved_spec is not None:
        return Plan(status=keep_resolved_spec(job, job.status), requeue_after=0)  # before anything is created from it
    deadline = count_seconds_to_deadline(job.spec, status, now) if job.spec else None
    objects = (
        *_restore_objects(observed, verdict),
        *_protect_pods(observed, verdict, status),
        *_open_sandboxes(observed, verdict),
    )
    if (after := count_seconds_to_write(observed, verdict, status, now)) > 0:
        soonest = min(each for each in (verdict.requeue_after, deadline, after) if each)
        return Plan(apply=objects, scale=verdict.scale, requeue_after=soonest)
    return Plan(
        dry_run=verdict.dry_run,
        apply=verdict.apply or objects,
        scale=verdict.scale,
        submit=verdict.submit,
        stop=verdict.stop,
        record=find_record(observed, verdict, status, now),
        delete_cluster=verdict.delete_cluster,
        status=None if status == job.status else status,
        events=(*build_events(job.status, status.conditions), *build_rule_events(job.status, status)),
        requeue_after=min((after for after in (verdict.requeue_after, deadline) if after is not None), default=None),
    )


def creates_cluster(plan: Plan) -> bool:
    """Whether the plan creates a RayCluster."""
    return any(manifest["kind"] == "RayCluster" for manifest in plan.apply)


def is_irreversible(before: RLTrainingJobStatus, plan: Plan) -> bool:
    """Whether the plan creates a RayCluster, removes pods, records a failed attempt, or ends or deletes the job.

    The cache may be behind the API server. Such a plan counts only if it is also the plan for what the API server has.
    Success does not depend on the cache: the head reports it of the Ray job that is named after its RayCluster.
    """
    after = plan.status
    ends = after is not None and bool(
        {identify(each) for each in after.attempts} - {identify(each) for each in before.attempts}
        or (is_true(after, ConditionType.FAILED) and not is_true(before, ConditionType.FAILED))
    )
    removes_pods = plan.scale is not None and plan.scale.replicas < plan.scale.before.replicas
    return creates_cluster(plan) or removes_pods or ends or plan.delete_job


def choose_urgency(before: RLTrainingJobStatus, plan: Plan) -> Urgency:
    """How urgent the plan's requests are within the namespace of the job."""
    after = plan.status or before
    changes_phase = after.phase != before.phase
    releases = changes_phase and after.phase in RELEASED
    stops = after.current_attempt is not None and after.current_attempt.stop is not None
    if releases or stops or plan.delete_cluster or plan.delete_job:
        return Urgency.STOP
    acts = plan.dry_run or plan.apply or plan.scale or plan.submit or plan.events
    return Urgency.NORMAL if acts or changes_phase else Urgency.PROGRESS


def decide(observed: Observed, now: datetime) -> Verdict:
    """The verdict of the first lifecycle step that applies."""
    for step in STEPS:
        if verdict := step(observed, now):
            return verdict
    if spec := observed.job.spec:
        for ready_step in READY_STEPS:
            if verdict := ready_step(observed, spec, now):
                return verdict
    raise RuntimeError(f"no lifecycle step applies to {observed.job.namespace}/{observed.job.name}")


def _restore_objects(observed: Observed, verdict: Verdict) -> tuple[Manifest, ...]:
    """What the pods of a RayCluster mount, if it was deleted or changed: the programs, and until the Ray job could read
    it, the ConfigMap."""
    job = observed.job
    cluster = observed.owned_cluster
    if job.spec is None or cluster is None or cluster.deleting or verdict.delete_cluster:
        return ()
    missing = observed.programs_missing and cluster.programs == name_programs()
    programs = (build_programs(job.namespace),) if missing else ()
    started = observed.ray is not None and observed.ray.job is not None
    return programs if started else (*programs, *_restore_config(job, job.spec, observed.config))


def _protect_pods(observed: Observed, verdict: Verdict, status: RLTrainingJobStatus) -> tuple[Manifest, ...]:
    """The PodDisruptionBudgets, when Ray has the first Ray job of an attempt. An eviction before loses no work."""
    job = observed.job
    cluster = observed.owned_cluster
    released = cluster is None or cluster.deleting or verdict.delete_cluster or verdict.is_final
    if job.spec is None or released or not _has_accepted(status.current_attempt):
        return ()
    if _has_accepted(observed.attempt) and not _reports_failed_request(job.status):
        return ()
    return build_disruption_budgets(job, job.spec)


def _open_sandboxes(observed: Observed, verdict: Verdict) -> tuple[Manifest, ...]:
    """The pool of sandbox pods, with each submission to the head that owns it: a trial of the program needs it, too."""
    job = observed.job
    head = observed.head
    sandbox = get_sandbox(job.spec) if job.spec else None
    if job.spec is None or head is None or sandbox is None or verdict.submit is None:
        return ()
    return build_sandbox_pool(job, job.spec, sandbox, head=head.name, head_uid=head.uid)


def _has_accepted(attempt: CurrentAttempt | None) -> bool:
    """Whether the status records that Ray has a Ray job of the attempt."""
    return attempt is not None and bool(
        attempt.accepted_time or attempt.preflight_accepted_time or attempt.prepare_step
    )


def _reports_failed_request(status: RLTrainingJobStatus) -> bool:
    """Whether a request of the operator has failed, possibly the creation of an object. It may be repeated."""
    reconciling = find_condition(status, ConditionType.RECONCILING)
    failed = reconciling is not None and reconciling.reason == Reason.REQUEST_FAILED
    return failed or is_true(status, ConditionType.STALLED)


def _restore_config(job: Job, spec: RLTrainingJobSpec, found: Config | None) -> tuple[Manifest, ...]:
    """The ConfigMap, if it is not as an operator wrote it. One from another version of the operator stays."""
    if (found and found.is_unchanged) or job.has_newer_fields:
        return ()
    manifest = build_config_map(job, spec)
    wanted = parse_config(manifest).digests
    if all(found is not None and found.digests.get(key) == digest for key, digest in wanted.items()):
        return ()  # pods mount none of the keys that a user may have added
    return (manifest,)
