"""The submission of a Ray job to the recorded head."""

from __future__ import annotations

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.observation import Observed
from rlt_operator.verdict import Submission, Verdict

ACCEPTANCE_INTERVAL_S = 0.5
"""Requeue interval until Ray reports the Ray job. A rejected submission is retried with backoff
(reconcile/failures.py)."""

C = ConditionType


def submit(observed: Observed, submission: Submission, cluster: ConditionUpdate, running: ConditionUpdate) -> Verdict:
    """Submit the Ray job once the status names the head that gets it. Ray ignores a repeated submission.

    `cluster` and `running` are the conditions ClusterReady, and Running unless Ray rejects the job. The status before
    the submission has them already, so that the submission itself changes nothing in the status.
    """
    attempt = observed.attempt
    head = observed.head
    if attempt is None or head is None or attempt.head_pod_uid != head.uid:
        return Verdict(
            running.message, Phase.PROVISIONING, {C.CLUSTER_READY: cluster, C.RUNNING: running}, requeue_after=0
        )
    rejection = observed.rejection
    if rejection and rejection.reason == Reason.SUBMISSION_REJECTED:
        message = f"Ray rejected {submission.name}: {truncate(rejection.message)}"
        running = ConditionUpdate("False", Reason.SUBMISSION_REJECTED, message)
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: running}
    return Verdict(
        running.message, Phase.PROVISIONING, conditions, submit=submission, requeue_after=ACCEPTANCE_INTERVAL_S
    )
