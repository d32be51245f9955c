"""The condition Published, from the results of spec.publish in the last report of the program."""

from __future__ import annotations

from rlt_api.spec.training_config import ProgressReport, PublicationResult
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.conditions import ConditionUpdate, is_true, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.verdict import Verdict

C = ConditionType
PENDING = ConditionUpdate("Unknown", Reason.PUBLICATION_PENDING, "The model is published at the end of the job.")
MISSING = ConditionUpdate("False", Reason.NOT_PUBLISHED, "The job has ended without a publication.")


def build_published(status: RLTrainingJobStatus, verdict: Verdict, places: int) -> ConditionUpdate:
    """The condition Published of a job with `places` in spec.publish.

    As Promoted, it is decided with Succeeded or Failed, in one write of the status, and kept from then on.
    """
    if is_true(status, C.SUCCEEDED) or is_true(status, C.FAILED):
        return keep_conditions(status, C.PUBLISHED).get(C.PUBLISHED, MISSING)
    if verdict.is_true(C.SUCCEEDED):
        return judge_publications(verdict.report, places)
    return MISSING if verdict.is_true(C.FAILED) else PENDING


def judge_publications(report: ProgressReport | None, places: int) -> ConditionUpdate:
    """The condition from a report. Each place must have a result without an error."""
    if report is None:
        message = "The program has not reported its publications."
        return ConditionUpdate("False", Reason.PUBLICATION_FAILED, message)
    if not report.published:
        message = "The model is not promoted: a suite does not pass its promoteIf."
        return ConditionUpdate("False", Reason.NOT_PUBLISHED, message)
    failed = [each for each in report.published if each.revision is None]
    message = truncate("; ".join(map(_describe, failed or report.published)))
    if failed or len(report.published) < places:
        return ConditionUpdate("False", Reason.PUBLICATION_FAILED, message)
    return ConditionUpdate("True", Reason.MODEL_PUBLISHED, message)


def _describe(result: PublicationResult) -> str:
    return f"{result.url}@{result.revision}" if result.revision else f"{result.url}: {result.error or 'no revision'}"
