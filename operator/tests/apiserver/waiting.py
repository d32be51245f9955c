"""Wait for a state that other processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 300.0
"""Timeout of a wait on a busy machine."""


def eventually(
    what: str, read: Callable[[], Any], deadline_s: float = DEADLINE_S, *, describe: Callable[[], object] = str
) -> Any:
    """Return the first true value of `read`. After the deadline, fail with the result of `describe`."""
    end = time.monotonic() + deadline_s
    while not (value := read()):
        assert time.monotonic() < end, f"not within {deadline_s:.0f} s: {what}; {describe()}"
        time.sleep(0.2)
    return value
