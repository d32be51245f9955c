"""Masks plain-text secrets of the job in everything that its status and events contain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from rlt_api.findings.masking import mask_text
from rlt_api.spec.plain_secrets import find_secrets
from rlt_core.job import Job
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict


def mask_secrets(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Mask the secrets of the job in all messages: from programs, the kubelet and the API server."""
    known = set(list_secrets(observed.job))
    conditions = {
        condition_type: replace(update, message=mask_text(update.message, known))
        for condition_type, update in verdict.conditions.items()
    }
    attempt = verdict.attempt
    if attempt is not None:
        attempt = attempt.model_copy(update={"message": mask_text(attempt.message, known)})
    findings = verdict.findings and tuple(
        each.model_copy(update={"evidence": mask_text(each.evidence, known)}) for each in verdict.findings
    )
    message = mask_text(verdict.message, known)
    return replace(verdict, message=message, conditions=conditions, attempt=attempt, findings=findings)


def list_secrets(job: Job) -> Iterator[str]:
    """List the plain-text secrets in the job's spec, as submitted and merged with its runtime."""
    specs = [job.submitted_spec, job.resolved_spec or {}]
    yield from (found.value for spec in specs for found in find_secrets(spec, "spec"))
