"""The end of an attempt without progress: write the stacks of all processes, stop the program, fail the attempt.

Each part is recorded in status.currentAttempt before the operator acts on it: the decision and the time (stacks.time),
the result of the stacks (stacks.result), and the request to stop the program (stop). After the decision, the attempt
ends in any case: a stack dump that does not succeed is reported in the message.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pydantic import BaseModel, ValidationError

from rlt_api.model import Count, Message, Names, Sentence
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import AttemptProgress, StackDump
from rlt_core.children.nccl_files import find_flight_records
from rlt_core.entrypoint import build_stacks_directory, build_stacks_entrypoint
from rlt_operator.conditions import ConditionUpdate, format_time
from rlt_operator.diagnosis.progress import extract_error, format_duration, parse_last_report
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.stopping import STOPPING_INTERVAL_S, describe_overdue_stop, is_program_running, stop_program
from rlt_operator.lifecycle.submission import ACCEPTANCE_INTERVAL_S
from rlt_operator.memory.attempt_progress import count_seconds_to_progress_deadline
from rlt_operator.observation import Observed
from rlt_operator.verdict import Submission, Verdict
from rlt_pod.dump_stacks import PREFIX

STACKS_TIMEOUT_S = 120.0
"""Time from the decision to the end of the Ray job that writes the stacks. It has 60 s for the nodes; Ray needs some
seconds to start it."""

C = ConditionType


def training_without_progress(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The program runs and has made no progress within spec.failurePolicy.progressDeadlineSeconds."""
    attempt = observed.attempt
    stop = observed.stop_request
    if attempt is None or attempt.progress is None:
        return None
    stopping = stop is not None and stop.reason == Reason.NO_PROGRESS
    if attempt.stacks is None:
        if stop or count_seconds_to_progress_deadline(observed, now) > 0:
            return None
        decided = StackDump(time=format_time(now))
        return _wait(observed, spec, _describe(observed, spec, attempt.progress, decided), decided)
    if not (stopping or is_program_running(observed)):
        return None  # it has ended by itself, or with its pods
    message = _describe(observed, spec, attempt.progress, attempt.stacks)
    if attempt.stacks.result is None:
        result = _find_result(observed, spec, attempt.stacks, now)
        recorded = attempt.stacks.model_copy(update={"result": result}) if result else attempt.stacks
        return _wait(observed, spec, message, recorded)
    if waiting := stop_program(observed, spec, Reason.NO_PROGRESS, "Ending the attempt without progress", now):
        return waiting
    message += describe_overdue_stop(observed, spec, now)
    conditions = {C.CLUSTER_READY: build_cluster_ready(observed, spec)} if observed.cluster else {}
    ray = observed.ray
    report = (parse_last_report(ray.log) if ray and ray.log else None) or (ray.progress if ray else None)
    return restart_failed_attempt(observed, fail_job(Reason.NO_PROGRESS, message, conditions, report), now)


def _wait(observed: Observed, spec: RLTrainingJobSpec, message: str, stacks: StackDump) -> Verdict:
    """Record the stacks or, if nothing about them changes, submit the Ray job that writes them."""
    attempt = observed.attempt
    ray = observed.ray
    stacks_id = observed.stacks_id
    conditions = {
        C.CLUSTER_READY: build_cluster_ready(observed, spec),
        C.RUNNING: ConditionUpdate("True", Reason.NO_PROGRESS, f"{message} Collecting the stacks of its processes."),
    }
    verdict = Verdict(conditions[C.RUNNING].message, conditions=conditions, stacks=stacks, requeue_after=0)
    if attempt is None or attempt.stacks != stacks:
        return verdict
    if ray is None or ray.unreachable or ray.stacks or stacks_id is None:
        return replace(verdict, requeue_after=STOPPING_INTERVAL_S)
    metadata = {"rlt.dev/job": observed.job.name, "rlt.dev/uid": observed.job.uid}
    submission = Submission("the stack dump", stacks_id, build_stacks_entrypoint(observed.job, spec), metadata)
    return replace(verdict, submit=submission, requeue_after=ACCEPTANCE_INTERVAL_S)


def _find_result(observed: Observed, spec: RLTrainingJobSpec, stacks: StackDump, now: datetime) -> str | None:
    """A sentence on the stacks; None while they are written."""
    ray = observed.ray
    dump = ray.stacks if ray else None
    if dump and dump.job.status not in ("PENDING", "RUNNING"):
        return describe_stacks(dump.log or dump.job.message, kept=spec.storage.outlives_pods)
    if (now - datetime.fromisoformat(stacks.time)).total_seconds() < STACKS_TIMEOUT_S:
        return None
    if ray and ray.unreachable:
        return f"Their stacks are not known: Ray's job API does not answer: {ray.unreachable}"
    where = f" Those in {build_stacks_directory(observed.job, spec)} are incomplete." if dump else ""
    return f"Their stacks are not known: they were not written within {STACKS_TIMEOUT_S:.0f} s.{where}"


class StacksReport(BaseModel):
    """The last line of rlt_pod.dump_stacks."""

    directory: Sentence
    processes: Count
    pods: Count
    missing: Names
    error: Message | None = None
    summary: Message | None = None


def describe_stacks(log: str, *, kept: bool) -> str:
    """A sentence on the stacks, from the output of the Ray job. `kept`: whether the files outlive the pods."""
    lines = [line.removeprefix(PREFIX) for line in log.splitlines() if line.startswith(PREFIX)]
    try:
        report = StacksReport.model_validate_json(lines[-1])
    except (IndexError, ValidationError):
        return f"Their stacks are not known: {extract_error(log) or 'the stack dump printed nothing'}"[:300]
    silent = f" Pods without an answer: {', '.join(report.missing)[:200]}." if report.missing else ""
    if report.error:
        return f"Their stacks cannot be written: {report.error[:200]}.{silent}"
    if report.processes == 0 and report.missing:
        return f"No pod has written its stacks within its time.{silent}"
    if report.processes == 0:
        return f"The stacks of the processes cannot be read: ptrace, which py-spy uses, is not permitted.{silent}"
    summary = f" {report.summary[:600]}" if report.summary else ""
    where = "" if kept else " of the head pod, until it is deleted (spec.storage has no PVC)"
    stacks = f"{report.processes} stack{'s' * (report.processes != 1)} of {report.pods} pod{'s' * (report.pods != 1)}"
    return f"{stacks}: {report.directory}{where}.{silent}{summary}"


def _describe(observed: Observed, spec: RLTrainingJobSpec, progress: AttemptProgress, stacks: StackDump) -> str:
    """What the program has not done, since when, and where the stacks and NCCL's flight records are."""
    passed = datetime.fromisoformat(stacks.time) - datetime.fromisoformat(progress.time)
    last = f"the last finished step is {progress.step}" if progress.step else "no step has finished"
    message = f"The program has made no progress for {format_duration(passed.total_seconds())}: {last}."
    if progress.deadline_seconds is not None:
        message += f" The deadline is {progress.deadline_seconds} s (spec.failurePolicy.progressDeadlineSeconds)."
    if stacks.result:
        message += f" {stacks.result}"
        if records := find_flight_records(observed.job, spec):
            message += f" If a collective has timed out, its flight records are {records}."
    return message
