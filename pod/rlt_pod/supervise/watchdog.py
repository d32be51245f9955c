"""The deadline for the progress of a program: a new line in the file with the metrics of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt_pod.report.step_history import iterate_steps

if TYPE_CHECKING:
    from pathlib import Path

STEP_FACTOR = 10
"""The default deadline is this multiple of the longest step: spec.failurePolicy.progressDeadlineSeconds."""
MIN_DEFAULT_S = 1800.0
"""The minimum of the default."""
CHECKS = 10
"""Number of reads within a deadline."""


@dataclass(frozen=True)
class Deadline:
    """When a program without progress has failed."""

    seconds: int | None
    """As given, also before the first step. 0: none. None: the default."""
    first_step_seconds: int | None
    """Before the first step, without `seconds`. None: none."""
    total_steps: int | None
    """After this step there is no deadline. None: unknown."""


class Watchdog:
    """Compares a file with its earlier state. Times are in seconds, of the monotonic clock."""

    def __init__(self, file: Path, deadline: Deadline, now: float) -> None:
        self._file = file
        self._deadline = deadline
        self._state = self._read_state()
        self._changed = now
        self._steps = 0
        self._longest = 0.0

    @property
    def interval(self) -> float:
        """Maximum seconds between two reads that find a deadline in time."""
        limit = self._compute_limit()
        return limit / CHECKS if limit else float("inf")

    def find_broken_limit(self, now: float) -> float | None:
        """Read the file. Returns the limit if the time without progress exceeds it."""
        state = self._read_state()
        if state != self._state:
            if self._steps:  # the time until the first step has the start in it
                self._longest = max(self._longest, now - self._changed)
            self._state = state
            self._changed = now
            self._steps += 1
        limit = self._compute_limit()
        if not limit or now - self._changed <= limit or self._has_last_step():
            return None
        return limit

    def _compute_limit(self) -> float | None:
        """None: no deadline now."""
        if self._deadline.seconds is not None:
            return self._deadline.seconds or None
        if not self._steps:
            return self._deadline.first_step_seconds
        return max(MIN_DEFAULT_S, STEP_FACTOR * self._longest) if self._longest else MIN_DEFAULT_S

    def _has_last_step(self) -> bool:
        total = self._deadline.total_steps
        if total is None or not self._steps:
            return False
        return any(step >= total for step, _ in iterate_steps(self._file))

    def _read_state(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:  # before the first step
            return None
        return found.st_size, found.st_mtime_ns
