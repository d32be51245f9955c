"""The state of a job: its conditions, and one line about it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_api.status.job_status import Phase

Job = Mapping[str, Any]
"""A job as the API server has it."""
NOT_RECONCILED = "The operator has not reconciled the job yet."
NOT_SUBMITTED = "not submitted"


def get_phase(job: Job) -> str:
    """The phase. Pending before the first reconciliation."""
    return str(job.get("status", {}).get("phase", Phase.PENDING))


def summarize(job: Job, *, bar: int = 0) -> str:
    """The state of the job on one line. `bar`: the width of a progress bar at its beginning."""
    status = job.get("status", {})
    progress = status.get("progress")
    text = f"{get_phase(job)}: {status.get('message') or NOT_RECONCILED}"
    if get_phase(job) == "Running" and progress and progress.get("step"):
        reward = get_reward(progress)
        text = f"{get_phase(job)}: {format_steps(progress)}" + (f", reward {reward}" if reward is not None else "")
        text += f", {progress['eta']} left" if progress.get("eta") else ""
    drawn_bar = bar and progress and draw_progress_bar(progress, bar)
    return f"{drawn_bar}  {text}" if drawn_bar else text


def get_reward(progress: Mapping[str, Any]) -> float | None:
    """The reward of a run in status.progress: the mean of ten steps, or the latest step's of an older driver."""
    reward: float | None = progress.get("reward", progress.get("metrics", {}).get("reward"))
    return reward


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


def draw_progress_bar(progress: Mapping[str, Any], width: int = 40) -> str:
    """For example ████░░░░ 50%. Empty if the total number of steps is unknown."""
    if not progress["totalSteps"]:
        return ""
    full = progress["percent"] * width // 100
    return f"{'█' * full}{'░' * (width - full)} {progress['display']}"
