"""Text about a job: the page of `rlt status` and one-line summaries. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rlt_api.driver_report import METRICS
from rlt_api.status import Phase
from rlt_cli.finding_card import format_card
from rlt_cli.output import format_table

Job = Mapping[str, Any]
Step = Mapping[str, float | None]
"""A line of metrics.jsonl: `step` and the metrics. None is NaN or infinite, which JSON cannot represent."""
BARS = "▁▂▃▄▅▆▇█"
MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}
"""Result of a preflight check -> its mark."""
PAGE_METRICS = {
    "reward": METRICS["reward"],
    "kl": METRICS["kl"],
    "entropy": METRICS["entropy"],
    "response length": METRICS["responseLength"],
    "gradient norm": METRICS["gradNorm"],
    "seconds a step": ("timing_s/step",),
}
"""Line of the status page -> verl's names of the metric. The first name that the run has is used."""
NOT_RECONCILED = "The operator has not reconciled the job yet."


def get_phase(job: Job) -> str:
    """The phase. Pending before the first reconciliation."""
    return str(job.get("status", {}).get("phase", Phase.PENDING))


def summarize(job: Job, *, bar: int = 0) -> str:
    """The state of the job on one line. `bar`: the width of a progress bar at its beginning."""
    status = job.get("status", {})
    progress = status.get("progress")
    text = f"{get_phase(job)}: {status.get('message') or NOT_RECONCILED}"
    if get_phase(job) == "Running" and progress and progress.get("step"):
        reward = progress.get("metrics", {}).get("reward")
        text = f"{get_phase(job)}: {format_steps(progress)}" + (f", reward {reward}" if reward is not None else "")
        text += f", {progress['eta']} left" if progress.get("eta") else ""
    drawn_bar = bar and progress and draw_progress_bar(progress, bar)
    return f"{drawn_bar}  {text}" if drawn_bar else text


def format_steps(progress: Mapping[str, Any]) -> str:
    """For example "step 3 of 10", or "step 3" if the total is unknown."""
    total = progress["totalSteps"]
    return f"step {progress['step']} of {total}" if total else f"step {progress['step']}"


def get_condition(job: Job, type: str) -> Mapping[str, Any]:
    """The condition of a type. Empty if the job does not have it."""
    found = [each for each in job.get("status", {}).get("conditions", []) if each["type"] == type]
    return found[0] if found else {}


def is_true(job: Job, type: str) -> bool:
    """Whether the condition is True and was observed for the current generation of the spec."""
    found = get_condition(job, type)
    return found.get("status") == "True" and found.get("observedGeneration", 0) >= job["metadata"].get("generation", 0)


def can_become_true(job: Job, type: str) -> bool:
    """Whether the condition can become True: after the job has ended, only the final condition itself is True."""
    return not any(is_true(job, final) for final in ("Succeeded", "Failed") if final != type)


def draw_sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """The finite values as bars, averaged to at most `width` bars."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    size = math.ceil(len(finite) / width)
    means = [sum(part) / len(part) for part in (finite[i : i + size] for i in range(0, len(finite), size))]
    low, high = min(means), max(means)
    return "".join(BARS[int((value - low) / (high - low) * 7.999) if high > low else 3] for value in means)


def draw_progress_bar(progress: Mapping[str, Any], width: int = 40) -> str:
    """For example ████░░░░ 50%. Empty if the total number of steps is unknown."""
    if not progress["totalSteps"]:
        return ""
    full = progress["percent"] * width // 100
    return f"{'█' * full}{'░' * (width - full)} {progress['display']}"


def format_page(job: Job, pods: Sequence[Job], history: Sequence[Step], now: datetime) -> str:
    """Everything about a job: header, progress, conditions, attempts, findings, checks, pods, metrics, problems."""
    status = job.get("status", {})
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    about = ", ".join(filter(None, (status.get("model"), status.get("algorithm"))))
    lines = [f"{name}  {get_phase(job)}" + (f"  {about}" if about else "")]
    lines.append(status.get("message") or NOT_RECONCILED)
    if progress := status.get("progress"):
        eta = f", {progress['eta']} left" if progress.get("eta") else ""
        lines += ["", f"{draw_progress_bar(progress)}  {format_steps(progress)}{eta}".strip()]
    rows = [
        (each["type"], each["status"], each["reason"], format_age(each["lastTransitionTime"], now), each["message"])
        for each in status.get("conditions", [])
    ]
    if rows:
        lines += ["", format_table(("CONDITION", "STATUS", "REASON", "AGE", "MESSAGE"), rows)]
    if attempts := [_attempt(each, now) for each in status.get("attempts", [])]:
        lines += ["", format_table(("ATTEMPT", "FAILED", "REASON", "STEP", "NODE AT FAULT", "MESSAGE"), attempts)]
    for finding in status.get("findings", []):
        lines += ["", format_card(finding, _get_place(finding))]
    if checks := status.get("preflight", []):
        lines += ["", format_checks(checks)]
    if pods:
        lines += ["", format_table(("POD", "NODE", "READY", "RESTARTS", "AGE"), [_pod(pod, now) for pod in pods])]
    if metrics := [(label, format_number(values[-1]), draw_sparkline(values)) for label, values in _series(history)]:
        lines += ["", format_table(("METRIC", "NOW", f"{len(history)} STEPS"), metrics)]
    return "\n".join([*lines, "", *_problems(job)])


def format_checks(checks: Sequence[Mapping[str, Any]]) -> str:
    """The preflight checks: value, limit, message, node and remedy of each."""
    return format_table(("CHECK", "VALUE", "LIMIT", "RESULT"), [_check(each) for each in checks])


def find_page_metrics(history: Sequence[Step]) -> dict[str, str]:
    """Line of the status page -> name of the metric, for the metrics that the run has."""
    known = {name for step in history for name in step}
    found = ((label, next((name for name in names if name in known), None)) for label, names in PAGE_METRICS.items())
    return {label: name for label, name in found if name is not None}


def build_metric_rows(history: Sequence[Step], names: Sequence[str]) -> list[tuple[object, ...]]:
    """One row per step: its number and the values of the metrics."""
    return [
        (step["step"], *(format_number(step[name]) if name in step else None for name in names)) for step in history
    ]


def format_number(value: float | None) -> str:
    """Four significant digits. NaN for None."""
    return "NaN" if value is None else f"{value:.4g}"


def format_age(since: str, now: datetime) -> str:
    """An age in kubectl's format: 45s, 3m, 2h or 5d."""
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _series(history: Sequence[Step]) -> list[tuple[str, list[float | None]]]:
    return [
        (label, [step[name] for step in history if name in step]) for label, name in find_page_metrics(history).items()
    ]


def _attempt(attempt: Mapping[str, Any], now: datetime) -> tuple[object, ...]:
    cells = [attempt.get(key) for key in ("reason", "step", "nodeAtFault", "message")]
    return attempt["number"], f"{format_age(attempt['completionTime'], now)} ago", *cells


def _get_place(finding: Mapping[str, Any]) -> str:
    rank = f"rank {finding['rank']}" if finding.get("rank") is not None else None
    return ", ".join(filter(None, (finding.get("pod"), finding.get("node"), rank)))


def _check(check: Mapping[str, Any]) -> tuple[object, ...]:
    remedy = f" {check['remedy']}" if check.get("remedy") else ""
    nodes = f" (node {', '.join(check['nodes'])})" if check.get("nodes") else ""
    cells = [check.get(key) for key in ("value", "threshold")]
    return f"{MARKS[check['result']]} {check['name']}", *cells, f"{check['message']}{nodes}{remedy}"


def _pod(pod: Job, now: datetime) -> tuple[object, ...]:
    status = pod.get("status", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
    restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses", []))
    started = format_age(pod["metadata"]["creationTimestamp"], now)
    return pod["metadata"]["name"], pod["spec"].get("nodeName"), "yes" if ready else "no", restarts, started


def _problems(job: Job) -> list[str]:
    conditions = [get_condition(job, type) for type in ("Failed", "Stalled")]
    unique = {each["message"]: each["reason"] for each in conditions if each.get("status") == "True"}
    return [f"! {reason}: {message}" for message, reason in unique.items()] or ["No problems found."]
