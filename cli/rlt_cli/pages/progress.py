"""The part of `rlt watch`'s and `rlt status`'s pages about progress: checklist, step bar, rates, bars. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from rlt.job_state import (
    NOT_RECONCILED,
    Job,
    draw_progress_bar,
    format_steps,
    get_condition,
    get_phase,
    is_true,
)
from rlt.metric_text import WINDOW, Step, average_window, draw_sparkline, find_page_metrics, format_number, list_values
from rlt_api.status.conditions import ConditionType
from rlt_cli.age import format_age
from rlt_cli.table import format_table, wrap

CHECKLIST = {
    ConditionType.ACCEPTED: "spec accepted",
    ConditionType.ADMITTED: "queue admitted",
    ConditionType.FABRIC_VERIFIED: "network verified",
    ConditionType.CLUSTER_READY: "Ray cluster ready",
    ConditionType.PREFLIGHT_PASSED: "preflight passed",
    ConditionType.RUNNING: "training started",
}
"""Condition -> its line in the start-up checklist."""
FIRST_STEP = "first step"
PHASE_COLORS = {"Running": "cyan", "Succeeded": "green", "Failed": "red", "Suspended": "yellow"}
DONE = "✓"
CURRENT = "▸"
LATER = "·"
PROBLEM = "✗"
MARK_COLORS = {DONE: "green", CURRENT: "cyan", PROBLEM: "red", "!": "yellow"}
MAX_BAR_WIDTH = 40
MIN_BAR_WIDTH = 10
MAX_SPARKLINE_WIDTH = 60
MIN_SPARKLINE_WIDTH = 10


def format_header(job: Job, width: int | None = None) -> list[str]:
    """Name, phase, model and algorithm, and the reason for the phase."""
    status = job.get("status", {})
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    about = ", ".join(filter(None, (status.get("model"), status.get("algorithm"))))
    phase = click.style(get_phase(job), fg=PHASE_COLORS.get(get_phase(job)), bold=True)
    heading = f"{name}  {get_phase(job)}  {about}".rstrip()
    lines = wrap(heading, width)
    lines[0] = lines[0].replace(f"{name}  {get_phase(job)}", f"{name}  {phase}", 1)
    return [*lines, *wrap(status.get("message") or NOT_RECONCILED, width)]


def format_checklist(job: Job, now: datetime, width: int | None = None) -> list[str]:
    """The steps of the start-up, until the first step of the training. Empty after it and after the end."""
    conditions = [(label, get_condition(job, condition_type)) for condition_type, label in CHECKLIST.items()]
    known = [(label, found) for label, found in conditions if found]
    if not known or _has_started(job):
        return []
    waiting = next((label for label, found in known if found["status"] != "True"), FIRST_STEP)
    shown = job["status"].get("message")
    lines = []
    for label, found in known:
        age = format_age(found["lastTransitionTime"], now) if found["status"] == "True" or label == waiting else ""
        message = found["message"] if label == waiting and found["message"] != shown else ""
        lines += _format_check(job, label, waiting, age, message, width)
    stage = job.get("status", {}).get("progress", {}).get("stage")
    message = f"The program is in the stage {stage}." if stage and waiting == FIRST_STEP else ""
    return [*lines, *_format_check(job, FIRST_STEP, waiting, "", message, width)]


def format_steps_bar(job: Job, history: Sequence[Step], width: int | None = None) -> list[str]:
    """The steps as a bar that fits the width, and the rates of the latest step."""
    progress = job.get("status", {}).get("progress")
    if not progress:
        return []
    text = format_steps(progress) + (f", {progress['eta']} left" if progress.get("eta") else "")
    room = MAX_BAR_WIDTH if width is None else width - len(f" {progress['display']}  {text}")
    bar = draw_progress_bar(progress, min(MAX_BAR_WIDTH, room)) if room >= MIN_BAR_WIDTH else ""
    colored = click.style(bar, fg=PHASE_COLORS.get(get_phase(job)))
    rates = ", ".join(_list_rates(job, history))
    return [f"{colored}  {text}" if bar else text, *(wrap(rates, width) if rates else [])]


def format_metrics(history: Sequence[Step], width: int | None = None) -> str:
    """Each metric as the mean of its last WINDOW steps, its latest value, and all values as bars that fit the width.

    Empty without metrics.
    """
    series = {label: list_values(history, name) for label, name in find_page_metrics(history).items()}
    numbers = {label: format_number(values[-1]) for label, values in series.items()}
    means = {label: format_number(average_window(values)) for label, values in series.items()}
    mean = f"LAST {WINDOW}"
    if not series:
        return ""
    columns = (list(series), [mean, *means.values()], ["NOW", *numbers.values()])
    used = sum(max(map(len, column)) + 3 for column in columns)
    room = MAX_BAR_WIDTH if width is None else min(MAX_SPARKLINE_WIDTH, max(MIN_SPARKLINE_WIDTH, width - used))
    rows = [
        (label, means[label], numbers[label], click.style(draw_sparkline(values, room), fg="cyan"))
        for label, values in series.items()
    ]
    return format_table(("METRIC", mean, "NOW", f"{len(history)} STEPS"), rows)


def color_mark(mark: str) -> str:
    """A mark of a checklist in its color."""
    return click.style(mark, fg=MARK_COLORS.get(mark))


def _has_started(job: Job) -> bool:
    step = job.get("status", {}).get("progress", {}).get("step")
    ended = any(is_true(job, condition_type) for condition_type in ("Succeeded", "Failed", "Suspended"))
    return ended or bool(step and get_condition(job, "Running").get("status") == "True")


def _format_check(job: Job, label: str, waiting: str, age: str, message: str, width: int | None) -> list[str]:
    order = [*CHECKLIST.values(), FIRST_STEP]
    done = order.index(label) < order.index(waiting)
    current = PROBLEM if is_true(job, "Stalled") else CURRENT
    mark = DONE if done else current if label == waiting else LATER
    start = f"{mark} {label:<17}  {age:<4}  "
    first, *more = wrap(message, width, start=start)
    return [color_mark(mark) + first.rstrip()[1:], *more]


def _list_rates(job: Job, history: Sequence[Step]) -> list[str]:
    last = history[-1] if history else {}
    seconds = last.get("timing_s/step")
    tokens = job["status"]["progress"].get("tokensPerSecond")
    phases = {name.removeprefix("timing_s/"): value for name, value in last.items() if name.startswith("timing_s/")}
    phases.pop("step", None)
    rates = [f"{format_number(seconds)} s a step"] if seconds else []
    rates += [f"{tokens:.0f} tokens/s"] if tokens else []
    if seconds and (known := {name: value for name, value in phases.items() if value}):
        longest = max(known, key=lambda name: known[name])
        rates.append(f"{100 * known[longest] / seconds:.0f} % in {longest}")
    return rates
