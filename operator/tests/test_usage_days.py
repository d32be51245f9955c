"""status.usage.days adds up: each day to what was held on it, and each part over the days to the part of the total."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_api.spec.training_config import PhaseSeconds
from rlt_api.status.job_status import MAX_USAGE_DAYS, Usage, UsageDay, UsageParts
from rlt_operator.memory.usage import Held, Program, Starts, count
from rlt_operator.memory.usage_days import DAY_S, add_days, split_days

MIDNIGHT = round(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
NAMES = tuple(UsageParts.model_fields)


def show(usage: Usage) -> dict[str, dict[str, int]]:
    return {each.day: each.by.model_dump(exclude_defaults=True) for each in usage.days}


def train(old: Usage | None, until: int, phases: PhaseSeconds | None, *, ended: bool = False) -> Usage:
    """A program on eight accelerators, which began at MIDNIGHT - 100 and is observed `until` seconds after it."""
    counted = MIDNIGHT - 100 if old is None else round(datetime.fromisoformat(old.observed_time).timestamp())
    starts = Starts(running=float("-inf"))
    return count(old, [Held(MIDNIGHT - 100, 8)], starts, Program(phases, ended), counted, MIDNIGHT + until)


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        (0, 60, {"2026-03-02": 60}),
        (-60, 0, {"2026-03-01": 60}),
        (-1, DAY_S + 1, {"2026-03-01": 1, "2026-03-02": DAY_S, "2026-03-03": 1}),
        (5, 5, {}),
        (5, 4, {}),
    ],
)
def test_an_interval_is_split_at_midnight_in_utc(start: int, end: int, days: dict[str, int]) -> None:
    assert dict(split_days(MIDNIGHT + start, MIDNIGHT + end)) == days


def test_each_day_has_what_was_held_on_it() -> None:
    usage = train(None, -50, PhaseSeconds(generate=50))
    assert show(usage) == {"2026-03-01": {"generate": 400}}
    usage = train(usage, 100, PhaseSeconds(generate=80, update=120))
    assert show(usage) == {"2026-03-01": {"generate": 640, "update": 160}, "2026-03-02": {"update": 800}}


def test_training_that_is_lost_moves_on_the_days_of_the_training() -> None:
    usage = train(None, 100, PhaseSeconds(update=200, uncommitted=150))
    assert show(usage) == {"2026-03-01": {"update": 800}, "2026-03-02": {"update": 800}}
    usage = train(usage, 100, PhaseSeconds(update=200, uncommitted=150), ended=True)
    assert show(usage) == {"2026-03-01": {"update": 400, "lost": 400}, "2026-03-02": {"lost": 800}}


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.randoms(use_true_random=False)), max_size=50)


@settings(deadline=None)
@given(CHANGES)
def test_days_and_parts_add_up_over_any_changes_of_the_parts(changes: list[tuple[int, int, Any]]) -> None:
    days: list[UsageDay] = []
    held = Counter[str]()
    today = datetime(2026, 3, 2, tzinfo=UTC)
    for passed, seconds, random in changes:
        today += timedelta(days=passed)
        name = today.date().isoformat()
        held[name] += seconds
        parts = Counter(random.choices(NAMES, k=held.total()))  # the parts of a total move arbitrarily
        days = add_days(days, {name: seconds}, UsageParts.model_validate(parts))
        assert sum((Counter(each.by.model_dump()) for each in days), Counter[str]()) == +parts
    assert [each.day for each in days] == sorted(+held)[-MAX_USAGE_DAYS:]
    for number, each in enumerate(days):
        before = sum(count for day, count in held.items() if day < each.day) if number == 0 else 0
        assert sum(each.by.model_dump().values()) == held[each.day] + before
        assert min(each.by.model_dump().values()) >= 0
