"""The part of `rlt status`'s page about the whole run: times, attempts, accelerators, checkpoint, results. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rlt.job_state import Job, get_reward
from rlt.metric_text import WINDOW, Step, format_number
from rlt_cli.age import format_age
from rlt_cli.pages.usage import describe_usage
from rlt_cli.table import wrap


def format_run_facts(job: Job, history: Sequence[Step], now: datetime, width: int | None = None) -> list[str]:
    """A line for each fact that is known. The results are left out if the history shows them."""
    status = job.get("status", {})
    facts = dict(_list_facts(status, now))
    if not history and (results := _describe_results(status.get("progress") or {})):
        facts["results"] = results
    indent = max(map(len, facts), default=0)
    return [line for label, text in facts.items() for line in wrap(text, width, start=f"{label:<{indent}}  ")]


def _list_facts(status: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    started = status.get("startTime")
    ended = status.get("completionTime")
    if started:
        yield "started", f"{started}, {format_age(started, now)} ago"
    if ended:
        until = datetime.fromisoformat(ended)
        yield "ended", f"{ended}, after {format_age(started, until)}" if started else ended
    restarts = status.get("restarts") or 0
    disruptions = status.get("disruptions") or 0
    if restarts or disruptions:
        yield "attempts", f"{1 + restarts + disruptions}: {restarts} after a failure, {disruptions} after a disruption"
    if usage := status.get("usage"):
        yield "accelerators", f"{status.get('gpus')} requested, {describe_usage(usage)}"
    if sandboxes := status.get("sandboxes"):
        yield "sandboxes", _describe_sandboxes(sandboxes)
    checkpoint = status.get("checkpoint") or {}
    if checkpoint.get("latestStep") is not None:
        yield "checkpoint", f"step {checkpoint['latestStep']} in {checkpoint.get('path')}"
    if exported := checkpoint.get("exportedPath"):
        yield "model", exported
    if published := status.get("published"):
        yield "published", "; ".join(f"{each['url']}: {each.get('revision', 'failed')}" for each in published)


def _describe_sandboxes(sandboxes: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{sandboxes.get(name, 0)} {name}" for name in ("ready", "claimed", "failed"))
    times = [
        f"{quantile} {format_number(sandboxes[field])} s"
        for quantile, field in (("p50", "claimSecondsP50"), ("p99", "claimSecondsP99"))
        if sandboxes.get(field) is not None
    ]
    return f"{counts}; claims {', '.join(times)}" if times else counts


def _describe_results(progress: Mapping[str, Any]) -> str:
    reward = get_reward(progress)
    metrics = progress.get("metrics", {})
    values = {f"reward (mean of {WINDOW} steps)": reward, "KL": metrics.get("kl"), "entropy": metrics.get("entropy")}
    return ", ".join(f"{label} {format_number(value)}" for label, value in values.items() if value is not None)
