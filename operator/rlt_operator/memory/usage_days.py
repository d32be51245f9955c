"""status.usage.days: the usage of each day. Pure.

A program's parts change until it ends: each report divides them again, and an attempt that ends early moves a part to
lost. What a part loses is taken from the latest days, and what the others gain stays on these days. So the sum of a day
is what the pods held on it, and the sum of a part over all days is usage.by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rlt_api.status.job_status import MAX_USAGE_DAYS, UsageDay, UsageParts

DAY_S = 24 * 3600


def split_days(start: int, end: int) -> Iterator[tuple[str, int]]:
    """The days of an interval in Unix seconds, such as 2026-01-02, and its seconds on each."""
    while start < end:
        midnight = min(end, (start // DAY_S + 1) * DAY_S)
        yield datetime.fromtimestamp(start, UTC).date().isoformat(), midnight - start
        start = midnight


def add_days(days: Sequence[UsageDay], added: Mapping[str, int], by: UsageParts) -> list[UsageDay]:
    """The days after `added` accelerator seconds (by day) were held, with which the parts of the total are `by`.

    At most MAX_USAGE_DAYS: what was before is part of the first one.
    """
    parts = {each.day: Counter(each.by.model_dump()) for each in days}
    room = Counter(added)
    for day in sorted(added):
        parts.setdefault(day, Counter())
    total = sum(parts.values(), Counter[str]())
    totals = by.model_dump()
    for name, wanted in totals.items():
        for day, seconds in _take(total[name] - wanted, {day: parts[day][name] for day in sorted(parts, reverse=True)}):
            parts[day][name] -= seconds
            room[day] += seconds
    for name in ("lost", *(name for name in totals if name != "lost")):
        order = sorted(parts, reverse=name == "lost")  # what is lost was held just before
        for day, seconds in _take(totals[name] - total[name], {day: room[day] for day in order}):
            parts[day][name] += seconds
            room[day] -= seconds
    return _fold({day: parts[day] for day in sorted(parts) if parts[day].total()})


def _take(seconds: int, available: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Divide what is to be taken over the days, in their order."""
    for day, most in available.items():
        taken = min(seconds, most)
        if taken > 0:
            yield day, taken
            seconds -= taken


def _fold(parts: Mapping[str, Counter[str]]) -> list[UsageDay]:
    """The latest days. The first one has everything before it."""
    kept = list(parts)[-MAX_USAGE_DAYS:]
    earlier = sum((parts[day] for day in parts if day <= kept[0]), Counter[str]()) if kept else Counter[str]()
    merged = {day: earlier if day == kept[0] else parts[day] for day in kept}
    return [UsageDay(day=day, by=UsageParts.model_validate(found)) for day, found in merged.items()]
