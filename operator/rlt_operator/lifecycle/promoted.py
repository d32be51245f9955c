"""The condition Promoted, from the gates in the last report of the program."""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import GateResult, ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.conditions import ConditionUpdate, is_true, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.verdict import Verdict

C = ConditionType
PENDING = ConditionUpdate("Unknown", Reason.GATES_PENDING, "promoteIf applies to the model after the last step.")
MISSING = ConditionUpdate("False", Reason.GATE_UNKNOWN, "The job has ended without the figures of its suites.")


def list_gates(spec: RLTrainingJobSpec) -> list[str]:
    """The names of the suites with promoteIf."""
    return [suite.name for suite in spec.evaluation if suite.promote_if is not None]


def build_promoted(status: RLTrainingJobStatus, verdict: Verdict, suites: Sequence[str]) -> ConditionUpdate:
    """The condition Promoted of a job whose `suites` have a gate.

    The verdict about the end of the program has its last report. The condition is decided with Succeeded or Failed, in
    one write of the status, and kept from then on.
    """
    if is_true(status, C.SUCCEEDED) or is_true(status, C.FAILED):
        return keep_conditions(status, C.PROMOTED).get(C.PROMOTED, MISSING)
    if verdict.is_true(C.SUCCEEDED):
        return judge_report(verdict.report, suites)
    return MISSING if verdict.is_true(C.FAILED) else PENDING


def judge_report(report: ProgressReport | None, suites: Sequence[str]) -> ConditionUpdate:
    """The condition from a report. A suite that the report lacks is unknown."""
    reported = {result.suite: result for result in report.gates} if report else {}
    missing = "the program has not reported its figures"
    results = [reported.get(suite, GateResult(suite=suite, evidence=missing)) for suite in suites]
    failed = [result for result in results if result.passed is False]
    unknown = [result for result in results if result.passed is None]
    message = truncate("; ".join(map(_describe, [*failed, *unknown] or results)))
    if failed:
        return ConditionUpdate("False", Reason.GATE_FAILED, message)
    if unknown:
        return ConditionUpdate("False", Reason.GATE_UNKNOWN, message)
    return ConditionUpdate("True", Reason.GATES_PASSED, message)


def _describe(result: GateResult) -> str:
    return f"{result.suite}: {result.evidence}"
