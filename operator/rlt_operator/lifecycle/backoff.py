"""The delay before the next attempt, from the recorded attempts: as the kubelet's CrashLoopBackOff."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rlt_api.status.job_status import Attempt

FIRST_DELAY_S = 10
MAX_DELAY_S = 300
RESET_AFTER_S = 600
"""An attempt that ran longer starts the series of delays again."""


def get_next_start(attempts: Sequence[Attempt]) -> datetime:
    """The earliest time of the next attempt. There is at least one failed attempt."""
    return datetime.fromisoformat(attempts[-1].completion_time) + timedelta(seconds=count_delay(attempts))


def count_delay(attempts: Sequence[Attempt]) -> int:
    """Seconds from the end of the last attempt to the next one: 10 s, doubled by each earlier one, at most 300 s.

    A first disruption has no delay. Repeated ones do: otherwise a node that ends each pod at once
    would cause restarts without a delay.
    """
    series = 0
    for attempt in reversed(attempts):
        series += 1
        if _ran_long(attempt):
            break
    doublings = series - (2 if attempts[-1].disruption else 1)
    return 0 if doublings < 0 else min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(doublings, 10))


def _ran_long(attempt: Attempt) -> bool:
    if attempt.start_time is None:
        return False
    ran = datetime.fromisoformat(attempt.completion_time) - datetime.fromisoformat(attempt.start_time)
    return ran.total_seconds() > RESET_AFTER_S
