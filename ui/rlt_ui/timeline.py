"""The attempts of a job on a time axis. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rlt_ui.source import Json


def build_timeline(status: Mapping[str, Any]) -> list[Json]:
    """The attempts in their order: number, start and end as Unix time, outcome, reason and step.

    An `end` of None: the attempt runs. A `start` of None: it is not recorded, and is after the end of the one before.
    `outcome` is Failed, Disrupted, or the phase of the job for its latest attempt.
    """
    ended = [
        {
            "number": each["number"],
            "start": parse_time(each.get("startTime")),
            "end": parse_time(each.get("completionTime")),
            "outcome": "Disrupted" if each.get("disruption") else "Failed",
            "reason": each.get("disruption") or each.get("reason", ""),
            "step": each.get("step"),
        }
        for each in status.get("attempts", [])
    ]
    phase = status.get("phase")
    latest = status.get("currentAttempt", {})
    if phase not in ("Running", "Succeeded", "Failed") or (phase == "Failed" and ended) or not status.get("startTime"):
        return ended
    start = status.get("activeSince") or latest.get("acceptedTime") if ended else status["startTime"]
    current = {
        "number": ended[-1]["number"] + 1 if ended else 1,
        "start": parse_time(start),
        "end": None if phase == "Running" else parse_time(status.get("completionTime")),
        "outcome": phase,
        "reason": "",
        "step": status.get("progress", {}).get("step"),
    }
    return [*ended, current]


def parse_time(text: str | None) -> float | None:
    """Unix time of RFC 3339. None if it is missing or invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
