"""The pages of `rlt status` and `rlt watch`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from rlt.job_state import Job, get_condition
from rlt.metric_text import Step
from rlt_cli.age import format_age
from rlt_cli.pages.finding_card import format_card
from rlt_cli.pages.progress import color_mark, format_checklist, format_header, format_metrics, format_steps_bar
from rlt_cli.pages.run_facts import format_run_facts
from rlt_cli.table import format_table, wrap

MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}
"""Result of a preflight check -> its mark."""


def format_page(job: Job, pods: Sequence[Job], history: Sequence[Step], now: datetime, width: int | None = None) -> str:
    """Everything about a job: header, progress, facts, conditions, attempts, findings, checks, pods, metrics, problems.

    Lines have at most `width` characters; without a width, each row of a table is one line.
    """
    status = job.get("status", {})
    conditions = [
        (each["type"], each["status"], each["reason"], format_age(each["lastTransitionTime"], now), each["message"])
        for each in status.get("conditions", [])
    ]
    attempts = [_attempt(each, now) for each in status.get("attempts", [])]
    prepared = [(each["name"], each["completionTime"]) for each in status.get("prepared", [])]
    return _join(
        "\n".join(format_header(job, width)),
        "\n".join(format_checklist(job, now, width)),
        "\n".join(format_steps_bar(job, history, width)),
        "\n".join(format_run_facts(job, history, now, width)),
        _table(("CONDITION", "STATUS", "REASON", "AGE", "MESSAGE"), conditions, width),
        _table(("ATTEMPT", "FAILED", "REASON", "STEP", "NODE AT FAULT", "MESSAGE"), attempts, width),
        *_format_findings(job, width),
        _table(("PREPARED", "COMPLETED"), prepared, width),
        format_checks(status.get("preflight", []), width),
        _table(("POD", "NODE", "READY", "RESTARTS", "AGE"), [_pod(pod, now) for pod in pods], width),
        format_metrics(history, width),
        "\n".join(_format_problems(job, width)),
    )


def format_watch_page(job: Job, history: Sequence[Step], now: datetime, width: int | None = None) -> str:
    """What changes while a job starts and runs: checklist, preflight checks, steps, rates, metrics and findings."""
    checklist = format_checklist(job, now, width)
    return _join(
        "\n".join(format_header(job, width)),
        "\n".join(checklist),
        format_checks(job.get("status", {}).get("preflight", []), width) if checklist else "",
        "\n".join(format_steps_bar(job, history, width)),
        format_metrics(history, width),
        *_format_findings(job, width),
        "\n".join(_format_problems(job, width)),
    )


def format_checks(checks: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """The preflight checks: value, limit, message, node and remedy of each. Empty without checks."""
    return _table(("CHECK", "VALUE", "LIMIT", "RESULT"), [_check(each) for each in checks], width)


def _join(*sections: str) -> str:
    return "\n\n".join(filter(None, sections))


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> str:
    return format_table(columns, rows, width) if rows else ""


def _format_findings(job: Job, width: int | None) -> list[str]:
    return [format_card(each, _get_place(each), width) for each in job.get("status", {}).get("findings", [])]


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
    return f"{color_mark(MARKS[check['result']])} {check['name']}", *cells, f"{check['message']}{nodes}{remedy}"


def _pod(pod: Job, now: datetime) -> tuple[object, ...]:
    status = pod.get("status", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
    restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses", []))
    started = format_age(pod["metadata"]["creationTimestamp"], now)
    return pod["metadata"]["name"], pod["spec"].get("nodeName"), "yes" if ready else "no", restarts, started


def _format_problems(job: Job, width: int | None) -> list[str]:
    conditions = [get_condition(job, condition_type) for condition_type in ("Failed", "Stalled")]
    unique = {each["message"]: each["reason"] for each in conditions if each.get("status") == "True"}
    problems = [line for message, reason in unique.items() for line in wrap(f"{reason}: {message}", width, start="! ")]
    if not problems and not job.get("status", {}).get("findings"):
        return ["No problems found."]
    return [click.style(line, fg="red") for line in problems]
