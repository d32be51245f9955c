"""What commands say of a job: rows, lines and the page of `rlt status`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rlt_api.driver_report import METRICS
from rlt_api.status import Phase
from rlt_cli.output import table

Job = Mapping[str, Any]
Step = Mapping[str, float | None]
"""A line of metrics.jsonl: `step` and the metrics. None is a number that JSON cannot say, NaN or infinite."""
BARS = "▁▂▃▄▅▆▇█"
MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}
"""How a check before the training came out."""
SHOWN = {
    "reward": METRICS["reward"],
    "kl": METRICS["kl"],
    "entropy": METRICS["entropy"],
    "response length": METRICS["responseLength"],
    "gradient norm": METRICS["gradNorm"],
    "seconds a step": ("timing_s/step",),
}
"""Lines of the status page -> verl's names of the metric; the first that is there counts."""


def phase(job: Job) -> str:
    """The job's phase; Pending before the operator has looked at it."""
    return str(job.get("status", {}).get("phase", Phase.PENDING))


def line(job: Job, *, bar: int = 0) -> str:
    """Where the job is, in one line, behind a bar of that width."""
    status = job.get("status", {})
    progress = status.get("progress")
    words = f"{phase(job)}: {status.get('message') or 'the operator has not looked at it yet'}"
    if phase(job) == "Running" and progress and progress.get("step"):
        reward = progress.get("metrics", {}).get("reward")
        words = f"{phase(job)}: {steps(progress)}" + (f", reward {reward}" if reward is not None else "")
        words += f", {progress['eta']} left" if progress.get("eta") else ""
    drawn = bar and progress and progress_bar(progress, bar)
    return f"{drawn}  {words}" if drawn else words


def steps(progress: Mapping[str, Any]) -> str:
    """Such as "step 3 of 10", or "step 3" where nobody knows how many there will be."""
    total = progress["totalSteps"]
    return f"step {progress['step']} of {total}" if total else f"step {progress['step']}"


def condition(job: Job, type: str) -> Mapping[str, Any]:
    """One condition; an empty one if the job has none of that type."""
    found = [each for each in job.get("status", {}).get("conditions", []) if each["type"] == type]
    return found[0] if found else {}


def has(job: Job, type: str) -> bool:
    """Whether the condition is True, and speaks of the spec as it is."""
    found = condition(job, type)
    return found.get("status") == "True" and found.get("observedGeneration", 0) >= job["metadata"].get("generation", 0)


def can_come(job: Job, type: str) -> bool:
    """Whether the condition may still become True: nothing but the end itself comes after the end."""
    return not any(has(job, final) for final in ("Succeeded", "Failed") if final != type)


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """The values that are finite as bars, averaged to at most `width` of them."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    size = math.ceil(len(finite) / width)
    means = [sum(part) / len(part) for part in (finite[i : i + size] for i in range(0, len(finite), size))]
    low, high = min(means), max(means)
    return "".join(BARS[int((value - low) / (high - low) * 7.999) if high > low else 3] for value in means)


def progress_bar(progress: Mapping[str, Any], width: int = 40) -> str:
    """Such as ████░░░░ 50%. Empty where nobody knows how many steps there will be."""
    if not progress["totalSteps"]:
        return ""
    full = progress["percent"] * width // 100
    return f"{'█' * full}{'░' * (width - full)} {progress['display']}"


def page(job: Job, pods: Sequence[Job], history: Sequence[Step], now: datetime) -> str:
    """Everything about a job: header, progress, conditions, checks, pods, metrics, findings."""
    status = job.get("status", {})
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    about = ", ".join(filter(None, (status.get("model"), status.get("algorithm"))))
    lines = [f"{name}  {phase(job)}" + (f"  {about}" if about else "")]
    lines.append(status.get("message") or "The operator has not looked at it yet.")
    if progress := status.get("progress"):
        eta = f", {progress['eta']} left" if progress.get("eta") else ""
        lines += ["", f"{progress_bar(progress)}  {steps(progress)}{eta}".strip()]
    rows = [
        (each["type"], each["status"], each["reason"], age(each["lastTransitionTime"], now), each["message"])
        for each in status.get("conditions", [])
    ]
    if rows:
        lines += ["", table(("CONDITION", "STATUS", "REASON", "AGE", "MESSAGE"), rows)]
    if attempts := [_attempt(each, now) for each in status.get("attempts", [])]:
        lines += ["", table(("ATTEMPT", "FAILED", "REASON", "STEP", "NODE AT FAULT", "MESSAGE"), attempts)]
    if checks := [_check(each) for each in status.get("preflight", [])]:
        lines += ["", table(("CHECK", "VALUE", "FOUND"), checks)]
    if pods:
        lines += ["", table(("POD", "NODE", "READY", "RESTARTS", "AGE"), [_pod(pod, now) for pod in pods])]
    if metrics := [(label, number(values[-1]), sparkline(values)) for label, values in _series(history)]:
        lines += ["", table(("METRIC", "NOW", f"{len(history)} STEPS"), metrics)]
    return "\n".join([*lines, "", *_findings(job)])


def shown(history: Sequence[Step]) -> dict[str, str]:
    """Lines of the status page -> the name that the run has for it, for those that it has."""
    known = {name for step in history for name in step}
    found = ((label, next((name for name in names if name in known), None)) for label, names in SHOWN.items())
    return {label: name for label, name in found if name is not None}


def metric_rows(history: Sequence[Step], names: Sequence[str]) -> list[tuple[object, ...]]:
    """A row for each step: its number and the named metrics."""
    return [(step["step"], *(number(step[name]) if name in step else None for name in names)) for step in history]


def number(value: float | None) -> str:
    """Four significant digits; NaN for what JSON cannot say."""
    return "NaN" if value is None else f"{value:.4g}"


def age(since: str, now: datetime) -> str:
    """Such as 45s, 3m, 2h or 5d, as kubectl has it."""
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _series(history: Sequence[Step]) -> list[tuple[str, list[float | None]]]:
    return [(label, [step[name] for step in history if name in step]) for label, name in shown(history).items()]


def _attempt(attempt: Mapping[str, Any], now: datetime) -> tuple[object, ...]:
    said = [attempt.get(key) for key in ("reason", "step", "nodeAtFault", "message")]
    return attempt["number"], f"{age(attempt['completionTime'], now)} ago", *said


def _check(check: Mapping[str, Any]) -> tuple[object, ...]:
    remedy = f" {check['remedy']}" if check.get("remedy") else ""
    nodes = f" (node {', '.join(check['nodes'])})" if check.get("nodes") else ""
    return f"{MARKS[check['result']]} {check['name']}", check.get("value"), f"{check['message']}{nodes}{remedy}"


def _pod(pod: Job, now: datetime) -> tuple[object, ...]:
    status = pod.get("status", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
    restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses", []))
    started = age(pod["metadata"]["creationTimestamp"], now)
    return pod["metadata"]["name"], pod["spec"].get("nodeName"), "yes" if ready else "no", restarts, started


def _findings(job: Job) -> list[str]:
    found = [each for each in (condition(job, type) for type in ("Failed", "Stalled")) if each.get("status") == "True"]
    unique = {each["message"]: each["reason"] for each in found}
    return [f"! {reason}: {message}" for message, reason in unique.items()] or ["No problems found."]
