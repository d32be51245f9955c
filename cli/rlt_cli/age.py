"""Ages in kubectl's format."""

from __future__ import annotations

from datetime import datetime


def format_age(since: str, now: datetime) -> str:
    """An age: 45s, 3m, 2h or 5d. `since` is RFC 3339."""
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
