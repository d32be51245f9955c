"""The results of the preflight checks, from the output of their Ray job. The status keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import PreflightCheck
from rlt_operator.conditions import ConditionUpdate, is_true, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.diagnosis.progress import extract_error
from rlt_operator.lifecycle.preflight_memory import is_remembered
from rlt_operator.observation import Observed, Pod, RayPreflight
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

C = ConditionType
_CHECKS = TypeAdapter(list[PreflightCheck])


def list_preflight_results(observed: Observed) -> list[PreflightCheck]:
    """The results on the nodes of the current RayCluster. An ended job keeps its last RayCluster's results."""
    preflight = _current_preflight(observed)
    if preflight is None:
        kept = _keeps_results(observed) or observed.job.status.preflight_passed is not None
        return observed.job.status.preflight if kept else []
    return parse_preflight(preflight.log or "", observed.cluster_pods)


def parse_preflight(log: str, pods: Sequence[Pod]) -> list[PreflightCheck]:
    """The results in the program's output; empty if it has none. Fields of a newer trainer are ignored."""
    lines = [line.removeprefix(PREFLIGHT_PREFIX) for line in log.splitlines() if line.startswith(PREFLIGHT_PREFIX)]
    if not lines:
        return []
    try:
        results = _CHECKS.validate_json(lines[-1], extra="ignore")
    except ValidationError:
        return []
    nodes = {pod.name: pod.node for pod in pods if pod.node}
    names = [check.get("pods", []) for check in json.loads(lines[-1])]  # a PreflightCheck has the first ones
    return [_add_nodes(check, each, nodes) for check, each in zip(results, names, strict=True)]


def build_preflight_passed(observed: Observed) -> ConditionUpdate:
    """The condition PreflightPassed."""
    preflight = _current_preflight(observed)
    if preflight is None:
        kept = keep_conditions(observed.job.status, C.PREFLIGHT_PASSED) if _keeps_results(observed) else {}
        if not kept and observed.job.spec and is_remembered(observed, observed.job.spec):
            message = "The checks passed on the same nodes with the same images in an earlier attempt."
            return ConditionUpdate("True", Reason.CHECKED, message)
        waiting = ConditionUpdate(
            "False", Reason.WAITING_FOR_CLUSTER, "The preflight checks start when the cluster is ready."
        )
        return kept.get(C.PREFLIGHT_PASSED, waiting)
    if preflight.job.status in ("PENDING", "RUNNING"):
        return ConditionUpdate("Unknown", Reason.CHECKING, "The preflight checks are running.")
    results = list_preflight_results(observed)
    if preflight.job.status == "SUCCEEDED":
        return ConditionUpdate("True", Reason.CHECKED, truncate(_describe_passed(results)))
    if preflight.job.status == "STOPPED":
        return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, "The preflight checks were stopped outside rlt.")
    message = _describe_failed(results) or extract_error(preflight.log or preflight.job.message)
    message = message or "The preflight checks exited without an error message."
    return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, truncate(message))


def _current_preflight(observed: Observed) -> RayPreflight | None:
    """The checks that Ray reports; None while Kueue evicts the cluster."""
    evicted = observed.cluster is not None and observed.cluster.suspend
    return observed.ray.preflight if observed.ray and not evicted else None


def _keeps_results(observed: Observed) -> bool:
    """Whether the results in the status belong to the current RayCluster, or to a job that has ended."""
    ended = any(is_true(observed.job.status, type) for type in (C.SUCCEEDED, C.FAILED))
    return ended or observed.is_submitted or observed.is_preflight_submitted


def _add_nodes(check: PreflightCheck, pods: Sequence[str], nodes: Mapping[str, str]) -> PreflightCheck:
    names = sorted({nodes[pod] for pod in pods if pod in nodes})
    return PreflightCheck.model_validate({**check.model_dump(), "nodes": names})


def _describe_passed(results: Sequence[PreflightCheck]) -> str:
    warned = [check for check in results if check.result == "warned"]
    passed = f"{len(results) - len(warned)} of {len(results)} checks passed"
    return f"{passed}; {'; '.join(map(_describe, warned))}" if warned else f"{passed}."


def _describe_failed(results: Sequence[PreflightCheck]) -> str:
    return " ".join(_describe(check) for check in results if check.result == "failed")


def _describe(check: PreflightCheck) -> str:
    nodes = f" (node {', '.join(check.nodes)})" if check.nodes else ""
    return f"{check.name}{nodes}: {check.message}{f' {check.remedy}' if check.remedy else ''}"
