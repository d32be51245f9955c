"""The condition PreflightPassed, from the preflight checks or what the status remembers of them."""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import PreflightCheck
from rlt_operator.conditions import ConditionUpdate, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.diagnosis.progress import extract_error
from rlt_operator.memory.preflight import has_passed_before, keeps_preflight_results, parse_preflight
from rlt_operator.observation import Observed

C = ConditionType


def build_preflight_passed(observed: Observed) -> ConditionUpdate:
    """The condition PreflightPassed."""
    preflight = observed.preflight
    if preflight is None:
        kept = keep_conditions(observed.job.status, C.PREFLIGHT_PASSED) if keeps_preflight_results(observed) else {}
        if not kept and observed.job.spec and has_passed_before(observed, observed.job.spec):
            message = "The checks passed on the same nodes with the same images in an earlier attempt."
            return ConditionUpdate("True", Reason.CHECKED, message)
        waiting = ConditionUpdate(
            "False", Reason.WAITING_FOR_CLUSTER, "The preflight checks start when the cluster is ready."
        )
        return kept.get(C.PREFLIGHT_PASSED, waiting)
    if preflight.job.status in ("PENDING", "RUNNING"):
        return ConditionUpdate("Unknown", Reason.CHECKING, "The preflight checks are running.")
    results = parse_preflight(preflight.log or "", observed.cluster_pods)
    if preflight.job.status == "SUCCEEDED":
        return ConditionUpdate("True", Reason.CHECKED, truncate(_describe_passed(results)))
    if preflight.job.status == "STOPPED":
        return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, "The preflight checks were stopped outside rlt.")
    message = _describe_failed(results) or extract_error(preflight.log or preflight.job.message)
    message = message or "The preflight checks exited without an error message."
    return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, truncate(message))


def _describe_passed(results: Sequence[PreflightCheck]) -> str:
    warned = [check for check in results if check.result == "warned"]
    passed = f"{len(results) - len(warned)} of {len(results)} checks passed"
    return f"{passed}; {'; '.join(map(_describe, warned))}" if warned else f"{passed}."


def _describe_failed(results: Sequence[PreflightCheck]) -> str:
    return " ".join(_describe(check) for check in results if check.result == "failed")


def _describe(check: PreflightCheck) -> str:
    nodes = f" (node {', '.join(check.nodes)})" if check.nodes else ""
    return f"{check.name}{nodes}: {check.message}{f' {check.remedy}' if check.remedy else ''}"
