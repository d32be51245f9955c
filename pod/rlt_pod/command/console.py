"""The progress of a program, from its output. Pure: lines and their times in, values out.

The sources are the step lines of verl (rlt_pod.report.step_line), of OpenRLHF and ROLL (foreign_lines), of slime,
Miles, NeMo-RL, SkyRL, prime-rl and TRL (step_formats) and, for the number of steps, verl's line "Total training steps"
and its progress bar (verl 0.9.1, verl/trainer/ppo/ray_trainer.py).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlt_pod.command.foreign_lines import parse_foreign_line
from rlt_pod.command.step_formats import Reader, read
from rlt_pod.report.driver_report import LATEST_STEPS, METRICS
from rlt_pod.report.metric_rules import DEFAULTS, Limit, MetricHistory, list_broken, record
from rlt_pod.report.phase_seconds import Devices, PhaseSeconds, add, build_phases, divide_step, save
from rlt_pod.report.step_line import parse_step_line

_TOTAL = re.compile(r"Total training steps: (?P<total>[0-9]{1,18})")
_BAR = re.compile(r"Training Progress: +[0-9]+%\|[^|]*\| *(?P<step>[0-9]{1,18})/(?P<total>[0-9]{1,18}) ")


@dataclass(frozen=True)
class Progress:
    """Progress of the program. Times are Unix times."""

    updated: float
    """Time of the last progress, or of the start."""
    stage: str = "preparing"
    """preparing, training, exporting or finished."""
    step: int = 0
    """Completed steps."""
    total_steps: int | None = None
    """Total number of steps. None if unknown."""
    total_is_given: bool = False
    """Whether the user set the total. Then the total in the output is ignored."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the latest step, by verl's names."""
    step_time: float | None = None
    """Time at which the step completed. None before the first step."""
    durations: tuple[float, ...] = ()
    """Seconds of each of the latest steps."""
    rewards: tuple[float, ...] = ()
    """The rewards of the steps before the latest one."""
    longest: float | None = None
    """Seconds of the longest step."""
    steps: int = 0
    """Number of completed steps since the first one in the output."""
    checkpoint_directory: str | None = None
    """Folder of the checkpoints. None if it is unknown."""
    checkpoint_step: int | None = None
    """Step of the latest complete checkpoint in it. None if there is none."""
    exported_path: str | None = None
    """Folder of the model in Hugging Face format. None if there is none."""
    tokens: float = 0.0
    """Number of tokens trained on since the start of the program."""
    limits: Mapping[str, Limit] = field(default_factory=lambda: DEFAULTS)
    """The rules over the metrics."""
    history: MetricHistory = field(default_factory=MetricHistory)
    """What the rules need of the steps before."""
    phases: PhaseSeconds = field(default_factory=PhaseSeconds)
    """How the accelerators spent the time of the steps, if the program reports its generation as verl does."""
    reader: Reader = field(default_factory=Reader)
    """What the lines of a step so far have shown, for programs that write several."""


def update(progress: Progress, line: str, now: float) -> Progress:
    """Update the progress with one line of output."""
    bar = _BAR.search(line)
    parsed = parse_step_line(line) or parse_foreign_line(line)
    total = _TOTAL.search(line) or bar
    if parsed is None:
        reader, parsed = read(progress.reader, line)
        progress = replace(progress, reader=reader)
    found = int(total["total"]) if total else progress.reader.total if parsed else None
    if found is not None and not progress.total_is_given:
        progress = replace(progress, total_steps=found)
    # The bar uses another stream than the step lines: if step lines exist, ignore it.
    if bar and not progress.metrics and (int(bar["step"]) > progress.step or progress.step_time is None):
        progress = _record_step(progress, int(bar["step"]), {}, now)
    if parsed:
        progress = _record_step(progress, *parsed, now)
        progress = replace(progress, history=record(progress.history, *parsed, progress.limits))
    return progress


def start_export(progress: Progress, now: float) -> Progress:
    """Record the start of the export, after the end of the training."""
    return replace(progress, stage="exporting", updated=now)


def finish(progress: Progress, now: float, exported_path: str | None = None) -> Progress:
    """Mark the progress as finished, after exit code 0."""
    return replace(progress, stage="finished", updated=now, exported_path=exported_path)


def build_report(progress: Progress) -> dict[str, Any] | None:
    """Build a ProgressReport as JSON. None before the output shows steps."""
    if progress.total_steps is None and progress.step_time is None:
        return None
    metrics = {field: _find_finite(progress.metrics, names) for field, names in METRICS.items()}
    rewards = _add_reward(progress)
    fields = {
        "stage": progress.stage,
        "step": progress.step,
        "totalSteps": max(progress.total_steps, progress.step) if progress.total_steps is not None else 0,
        "secondsPerStep": sum(progress.durations) / len(progress.durations) if progress.durations else None,
        "longestStepSeconds": progress.longest,
        "tokensPerSecond": compute_tokens_per_second(progress),
        "metrics": {field: value for field, value in metrics.items() if value is not None},
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "brokenRules": [each._asdict() for each in list_broken(progress.history, progress.limits)],
        "latestCheckpointStep": progress.checkpoint_step,
        "checkpointDirectory": progress.checkpoint_directory,
        "exportedPath": progress.exported_path,
        "phases": _build_phases(progress),
        "updated": _format_rfc3339(progress.updated),
    }
    return {field: value for field, value in fields.items() if value is not None}


def compute_tokens_per_second(progress: Progress) -> float | None:
    """Tokens per second of the latest step, over all workers. (verl's perf/throughput is per device.)"""
    tokens = _find_finite(progress.metrics, ("perf/total_num_tokens",))
    seconds = _read_step_seconds(progress.metrics)
    if tokens is None:
        return _find_finite(progress.metrics, ("perf/tokens_per_second",))
    return tokens / seconds if seconds else None


def _record_step(progress: Progress, step: int, metrics: Mapping[str, float], now: float) -> Progress:
    """Record a completed step, or more metrics of the same step. If the count decreases, the program has restarted."""
    if progress.step_time is not None and step == progress.step:
        return replace(progress, metrics={**progress.metrics, **metrics}, updated=now)
    advanced = progress.step_time is not None and step > progress.step
    seconds = _read_step_seconds(metrics)
    if seconds is not None:
        seconds += _find_finite(metrics, ("timing_s/testing",)) or 0.0  # verl's step does not include validation
    elif progress.step_time is not None and advanced:
        seconds = (now - progress.step_time) / (step - progress.step)
    durations = (*(progress.durations if advanced else ()), *([] if seconds is None else [seconds]))
    return replace(
        progress,
        stage="training",
        step=step,
        metrics=metrics,
        step_time=now,
        durations=durations[-LATEST_STEPS:],
        rewards=_add_reward(progress) if advanced else (),
        longest=max(progress.longest or 0, seconds) if seconds is not None else progress.longest,
        phases=_add_phases(progress, step, metrics, seconds, now),
        steps=progress.steps + (step - progress.step if advanced else 0),
        tokens=progress.tokens + (_find_finite(metrics, ("perf/total_num_tokens",)) or 0.0),
        updated=now,
    )


def _add_phases(
    progress: Progress, step: int, metrics: Mapping[str, float], seconds: float | None, now: float
) -> PhaseSeconds:
    """The phases with the time since the step before, or with a first step's own `seconds`."""
    if seconds is None or _find_finite(metrics, ("timing_s/gen",)) is None:
        return progress.phases
    since = progress.step_time
    wall = seconds if since is None or not progress.phases.total else max(seconds, now - since)
    return add(progress.phases, divide_step(metrics, wall, Devices(train=1)), step)


def _build_phases(progress: Progress) -> dict[str, float] | None:
    """The report's phases; None if the program does not report them."""
    if not progress.phases.total:
        return None
    step = progress.checkpoint_step
    return build_phases(progress.phases if step is None else save(progress.phases, step))


def _add_reward(progress: Progress) -> tuple[float, ...]:
    """The rewards of the latest steps, with the latest step's, whose metrics may come in several lines."""
    reward = _find_finite(progress.metrics, METRICS["reward"])
    return (*progress.rewards, *(() if reward is None else (reward,)))[-LATEST_STEPS:]


def _read_step_seconds(metrics: Mapping[str, float]) -> float | None:
    return _find_finite(metrics, ("timing_s/step", "perf/time_per_step"))


def _find_finite(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """The value of the first name with a finite value. JSON has no other numbers."""
    return next((metrics[name] for name in names if math.isfinite(metrics.get(name, math.nan))), None)


def _format_rfc3339(moment: float) -> str:
    whole, milliseconds = divmod(round(moment * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03d}Z"
