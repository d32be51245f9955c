"""The checks before the training: what their Ray job says of the nodes, and what the status keeps of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from rlt_api.conditions import ConditionType, Reason
from rlt_api.driver_report import PREFLIGHT_PREFIX
from rlt_api.status import PreflightCheck
from rlt_operator.conditions import ConditionUpdate, condition, is_true
from rlt_operator.diagnosis.pods import shorten
from rlt_operator.diagnosis.progress import last_words
from rlt_operator.observation import Observed, Pod, RayPreflight, cluster_pods, preflighted, submitted

MAX_LIST_LENGTH = 32
"""Pods of a check that the status keeps: thousands may fail alike."""

_CHECKS = TypeAdapter(list[PreflightCheck])


def preflight_condition(observed: Observed) -> ConditionUpdate | None:
    """PreflightPassed; None for a job that asks for no checks."""
    spec = observed.job.spec
    if spec is None or not spec.preflight.enabled:
        return None
    seen = _seen(observed)
    if seen is None:
        before = condition(observed.job.status, ConditionType.PREFLIGHT_PASSED)
        if before and _remembered(observed):
            return ConditionUpdate(before.status, before.reason, before.message)
        return ConditionUpdate("False", Reason.WAITING_FOR_CLUSTER, "The nodes are checked once the cluster is ready.")
    if seen.job.status in ("PENDING", "RUNNING"):
        return ConditionUpdate("Unknown", Reason.CHECKING, "The nodes are being checked.")
    found = preflight_results(observed)
    if seen.job.status == "SUCCEEDED":
        return ConditionUpdate("True", Reason.CHECKED, shorten(_passed(found)))
    if seen.job.status == "STOPPED":
        return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, "The checks were stopped by somebody.")
    words = _failed(found) or last_words(seen.log or seen.job.message) or "The checks failed in silence."
    return ConditionUpdate("False", Reason.PREFLIGHT_FAILED, shorten(words))


def preflight_results(observed: Observed) -> list[PreflightCheck]:
    """What was found on the nodes of the Ray cluster that there is; of an earlier one only once the job has ended."""
    seen = _seen(observed)
    if seen is None:
        return observed.job.status.preflight if _remembered(observed) else []
    return parse_preflight(seen.log or "", cluster_pods(observed))


def parse_preflight(log: str, pods: Sequence[Pod]) -> list[PreflightCheck]:
    """The list in the program's output; empty if there is none. Fields of a newer trainer are passed over."""
    lines = [line.removeprefix(PREFLIGHT_PREFIX) for line in log.splitlines() if line.startswith(PREFLIGHT_PREFIX)]
    if not lines:
        return []
    try:
        found = _CHECKS.validate_json(lines[-1], extra="ignore")
    except ValidationError:
        return []
    nodes = {pod.name: pod.node for pod in pods if pod.node}
    return [_placed(check, nodes) for check in found]


def _placed(check: PreflightCheck, nodes: Mapping[str, str]) -> PreflightCheck:
    """With the nodes of its pods."""
    named = sorted({nodes[pod] for pod in check.pods if pod in nodes})
    return check.model_copy(update={"pods": _shortened(check.pods), "nodes": _shortened(named)})


def _passed(found: Sequence[PreflightCheck]) -> str:
    warned = [check for check in found if check.result == "warned"]
    words = f"{len(found) - len(warned)} of {len(found)} checks have passed"
    return f"{words}; {'; '.join(map(_sentence, warned))}" if warned else f"{words}."


def _failed(found: Sequence[PreflightCheck]) -> str:
    return " ".join(_sentence(check) for check in found if check.result == "failed")


def _sentence(check: PreflightCheck) -> str:
    where = f" (node {', '.join(check.nodes)})" if check.nodes else ""
    return f"{check.name}{where}: {check.message}{f' {check.remedy}' if check.remedy else ''}"


def _seen(observed: Observed) -> RayPreflight | None:
    """What Ray says of the checks; of a cluster that its queue takes back, nothing."""
    evicted = observed.cluster is not None and observed.cluster.suspend
    return observed.ray.preflight if observed.ray and not evicted else None


def _remembered(observed: Observed) -> bool:
    """Whether the status speaks of the cluster that there is, or of a job that has ended."""
    ended = any(is_true(observed.job.status, type) for type in (ConditionType.SUCCEEDED, ConditionType.FAILED))
    return ended or submitted(observed) or preflighted(observed)


def _shortened(names: Sequence[str]) -> list[str]:
    if len(names) <= MAX_LIST_LENGTH:
        return list(names)
    return [*names[: MAX_LIST_LENGTH - 1], f"and {len(names) - MAX_LIST_LENGTH + 1} more"]
