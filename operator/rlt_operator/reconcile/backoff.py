"""When to retry a job whose requests fail: after 2 s, doubled up to 60 s. In memory: a restart begins again.

A watch event, for example of the operator's own status write, does not shorten the wait. A change of the job by its
user does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rlt_operator.work_queue import Key

MIN_DELAY_S = 2.0
"""Delay after the first failure."""
MAX_DELAY_S = 60.0
"""Maximum delay."""


@dataclass(frozen=True)
class Failure:
    """The consecutive failures of a job."""

    count: int
    delay: float
    """Seconds from the latest failure to the next attempt."""
    retry_at: float
    """When to retry (time.monotonic)."""
    resource_version: str | None = None
    """resourceVersion of the job after the report of the failure. Another one means that the job has changed."""


class Backoff:
    """The failures of all jobs."""

    def __init__(self, max_delay: float = MAX_DELAY_S) -> None:
        self._max_delay = max_delay
        self._failures: dict[Key, Failure] = {}

    def fail(self, key: Key) -> Failure:
        """Count a failure."""
        count = self._failures[key].count + 1 if key in self._failures else 1
        delay = min(self._max_delay, MIN_DELAY_S * 2 ** min(count - 1, 10))
        self._failures[key] = Failure(count, delay, time.monotonic() + delay)
        return self._failures[key]

    def set_resource_version(self, key: Key, version: str) -> None:
        """Set the resourceVersion of the job after the report of its failure."""
        known = self._failures[key]
        self._failures[key] = Failure(known.count, known.delay, known.retry_at, version)

    def get(self, key: Key) -> Failure | None:
        """The failure that the job waits for; None if it may be reconciled now."""
        known = self._failures.get(key)
        return known if known and known.retry_at > time.monotonic() else None

    def clear(self, key: Key) -> None:
        """Forget the failures of the job."""
        self._failures.pop(key, None)
