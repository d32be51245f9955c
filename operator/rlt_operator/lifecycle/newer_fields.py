"""A job that a newer version of the operator has accepted: its program continues, and no other one starts."""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import Reason
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.lifecycle.shared_verdicts import wait_for_cluster
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict


def newer_fields_given(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The resolved spec has values of fields that this version does not have. What is created or submitted without
    them would differ from what the user has requested."""
    job = observed.job
    is_submitted = observed.is_submitted or (observed.ray is not None and observed.ray.job is not None)
    if not job.has_newer_fields or is_submitted:
        return None
    message = f"This version of the operator cannot start the job: {'; '.join(map(str, job.findings))}"
    return wait_for_cluster(Reason.INVALID_SPEC, truncate(message), stalled=True)
