"""The lifecycle of a job: each step handles one situation and returns a verdict, or None if the situation is another.

`plan` calls the steps in the order of the lists. The first verdict counts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rlt_api.spec import RLTrainingJobSpec
from rlt_operator.lifecycle.admission import (
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
from rlt_operator.lifecycle.findings import set_findings
from rlt_operator.lifecycle.masking import mask_secrets
from rlt_operator.lifecycle.no_progress import training_without_progress
from rlt_operator.lifecycle.preflight import preflight_pending
from rlt_operator.lifecycle.preparation import preparation_pending
from rlt_operator.lifecycle.provisioning import cluster_not_ready, program_not_submitted
from rlt_operator.lifecycle.rejections import set_rejection
from rlt_operator.lifecycle.restarts import attempt_failed, restart_delayed
from rlt_operator.lifecycle.running import job_is_suspended, program_running
from rlt_operator.lifecycle.terminal import (
    cancellation_requested,
    head_lost,
    job_is_finished,
    program_ended,
    spec_is_invalid,
)
from rlt_operator.lifecycle.topics import set_topic_conditions
from rlt_operator.lifecycle.verdict import Verdict
from rlt_operator.observation import Observed

Step = Callable[[Observed, datetime], Verdict | None]
ReadyStep = Callable[[Observed, RLTrainingJobSpec, datetime], Verdict | None]
ReportUpdate = Callable[[Observed, Verdict, datetime], Verdict]

STEPS: list[Step] = [
    job_is_finished,
    cancellation_requested,
    spec_is_invalid,
]
"""For every job."""

READY_STEPS: list[ReadyStep] = [
    pending_deadline_exceeded,
    runtime_not_found,
    checkpoint_missing,
    attempt_failed,
    program_ended,
    job_is_suspended,
    active_deadline_exceeded,
    training_without_progress,
    cluster_name_taken,
    previous_cluster_terminating,
    restart_delayed,
    kuberay_missing,
    fabric_not_decided,
    kuberay_too_old,
    cluster_missing,
    waiting_for_queue,
    head_lost,
    program_running,
    preparation_pending,
    preflight_pending,
    program_not_submitted,
    cluster_not_ready,
]
"""For a job with a valid spec, after STEPS."""

REPORT_UPDATES: list[ReportUpdate] = [
    set_findings,
    set_topic_conditions,
    set_rejection,
    mask_secrets,
]
"""Applied in this order to what the verdict reports. They change no action."""
