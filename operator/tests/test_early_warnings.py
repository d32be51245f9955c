"""Events that arrive before their pod: kept for a minute, bounded for each namespace and in all."""

from __future__ import annotations

import pytest

from rlt_operator.cache import early_warnings
from rlt_operator.cache.early_warnings import MAX_AGE_S, MAX_OF_A_NAMESPACE, EarlyWarnings


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def early(clock: Clock) -> EarlyWarnings:
    return EarlyWarnings(clock)


def put(early: EarlyWarnings, number: int, *, namespace: str = "demo", pod: str = "pod") -> None:
    early.put((namespace, f"event-{number:04}"), (namespace, pod), {"number": number})


def test_the_events_of_a_pod_are_taken_once(early: EarlyWarnings) -> None:
    put(early, 1)
    put(early, 2)
    put(early, 3, pod="other")
    assert early.take(("demo", "pod")) == [{"number": 1}, {"number": 2}]
    assert early.take(("demo", "pod")) == []
    assert len(early) == 1


def test_an_event_is_kept_for_a_minute(early: EarlyWarnings, clock: Clock) -> None:
    put(early, 1)
    clock.seconds = MAX_AGE_S + 1
    assert early.take(("demo", "pod")) == []
    put(early, 2)
    clock.seconds += MAX_AGE_S + 1
    put(early, 3, namespace="other")
    assert len(early) == 1, "an event of another namespace removes the old ones"


def test_a_namespace_does_not_displace_the_events_of_another_one(early: EarlyWarnings) -> None:
    put(early, 0, namespace="quiet")
    for number in range(10 * MAX_OF_A_NAMESPACE):
        put(early, number, pod=f"pod-{number}")
    assert len(early) == MAX_OF_A_NAMESPACE + 1
    assert early.take(("quiet", "pod")) == [{"number": 0}]
    assert early.take(("demo", f"pod-{10 * MAX_OF_A_NAMESPACE - 1}"))


def test_all_events_are_bounded(early: EarlyWarnings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_warnings, "MAX_EVENTS", 3)
    for number in range(5):
        put(early, number, namespace=f"team-{number}")
    assert len(early) == 3
