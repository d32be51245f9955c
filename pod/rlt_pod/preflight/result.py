"""The result of a check, and the parts of its message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_NAMED_PODS = 3
"""Maximum number of pods in a message. The result lists all of them."""
MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}


@dataclass(frozen=True)
class Result:
    """The result of a check: rlt_api.status.job_status.PreflightCheck without the nodes."""

    name: str
    result: str
    """passed, warned or failed."""
    message: str
    value: str | None = None
    """The measured value; the worst one of several pods."""
    threshold: str | None = None
    """The limit that the value is compared with."""
    remedy: str | None = None
    pods: tuple[str, ...] = ()
    """The affected pods. Empty: all."""
    stage: str = ""
    seconds: float = 0.0
    """Duration of the measurement."""


def passed(name: str, value: str | None, message: str, *, threshold: str | None = None) -> Result:
    """Build the result of a check without a problem."""
    return Result(name, "passed", message, value, threshold)


def warned(
    name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = (), *, threshold: str | None = None
) -> Result:
    """Build the result of a check whose problem does not prevent the training."""
    return Result(name, "warned", message, value, threshold, remedy, tuple(sorted(set(pods))))


def failed(
    name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = (), *, threshold: str | None = None
) -> Result:
    """Build the result of a check whose problem makes the training fail or differ from the spec."""
    return Result(name, "failed", message, value, threshold, remedy, tuple(sorted(set(pods))))


def fail_if(
    fatal: bool,
    name: str,
    value: str | None,
    message: str,
    remedy: str,
    pods: Iterable[str] = (),
    *,
    threshold: str | None = None,
) -> Result:
    """Build a failed result if `fatal`, else one with a warning."""
    return (failed if fatal else warned)(name, value, message, remedy, pods, threshold=threshold)


def check_answers(unanswered: Mapping[str, str]) -> Result | None:
    """Fail if a pod did not answer in a stage after the network. None: all have answered."""
    if not unanswered:
        return None
    message = f"No answer from {format_pods(unanswered)}: {format_reasons(unanswered)}."
    remedy = "Inspect the node: a volume or a program of the vendor that hangs blocks the process."
    return failed("pods", None, message, remedy, unanswered)


def to_json(result: Result) -> dict[str, Any]:
    """Convert to the JSON of a PreflightCheck."""
    fields = {**vars(result), "pods": list(result.pods), "seconds": round(result.seconds, 2)}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def format_line(result: Result) -> str:
    """Format the result for people, in one line."""
    limit = f" (limit {result.threshold})" if result.threshold else ""
    value = f" {result.value}{limit}." if result.value else ""
    remedy = f" {result.remedy}" if result.remedy else ""
    return f"{MARKS[result.result]} {result.name}:{value} {result.message}{remedy}"


def add_stage(result: Result, stage: str, seconds: float) -> Result:
    """Add the stage and the duration of the measurement."""
    return replace(result, stage=stage, seconds=seconds)


def format_pods(pods: Iterable[str]) -> str:
    """Format pod names for a message, for example "a, b, c and 5 more"."""
    names = sorted(set(pods))
    more = f" and {len(names) - MAX_NAMED_PODS} more" if len(names) > MAX_NAMED_PODS else ""
    return ", ".join(names[:MAX_NAMED_PODS]) + more


def format_reasons(reasons: Mapping[str, str]) -> str:
    """Format the first pods with their reasons: "a: reason; b: reason"."""
    return "; ".join(f"{pod}: {reason}" for pod, reason in sorted(reasons.items())[:MAX_NAMED_PODS])


def format_gib(size: float) -> str:
    """Format a number of bytes, such as 1.5Gi."""
    return f"{size / 2**30:.1f}Gi"
