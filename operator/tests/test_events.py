"""EventWriter: a transition that flaps is one Event with a count, and a job has a limit."""

from __future__ import annotations

from typing import Any, cast

import observed as o
import pytest

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.conditions import Event
from rlt_operator.reconcile import events
from rlt_operator.reconcile.events import EventWriter, get_event_name

JOB = o.job()


class FakeApi:
    """An API server that stores events."""

    def __init__(self) -> None:
        self.stored: dict[str, Manifest] = {}
        self.writes = 0

    async def create(self, path: str, manifest: Manifest) -> None:
        self.writes += 1
        path = f"{path}/{manifest['metadata']['name']}"
        if path in self.stored:
            raise ApiError(409, "already exists")
        self.stored[path] = manifest

    async def get(self, path: str) -> Manifest | None:
        return self.stored.get(path)

    async def merge(self, path: str, patch: dict[str, Any]) -> None:
        self.stored[path] = {**self.stored[path], **patch}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def writer(api: FakeApi) -> EventWriter:
    return EventWriter(cast(KubernetesApi, api))


def unreachable(seconds: int) -> Event:
    return Event("Warning", "RayUnreachable", f"Ray's job API does not answer: timeout after {seconds} s")


async def test_a_transition_that_flaps_is_one_event(api: FakeApi, writer: EventWriter) -> None:
    for seconds in range(5):
        await writer.write(JOB, [unreachable(seconds), Event("Normal", "Running", "The Ray job is running.")], o.NOW)
    counts = {each["reason"]: (each["count"], each["message"]) for each in api.stored.values()}
    assert counts["RayUnreachable"] == (5, "Ray's job API does not answer: timeout after 4 s")
    assert counts["Running"][0] == 5


async def test_a_job_has_a_limit_of_writes(api: FakeApi, writer: EventWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for seconds in range(100):
        await writer.write(JOB, [unreachable(seconds)], o.NOW)
    assert api.writes == events.BURST
    now[0] += events.REFILL_S
    for seconds in range(10):
        await writer.write(JOB, [unreachable(seconds)], o.NOW)
    assert api.writes == events.BURST + 1


async def test_an_expired_event_is_created_again(api: FakeApi, writer: EventWriter) -> None:
    await writer.write(JOB, [unreachable(1)], o.NOW)
    api.stored.clear()
    await writer.write(JOB, [unreachable(1)], o.NOW)
    assert [each["count"] for each in api.stored.values()] == [1]


def test_names_differ_by_job_reason_and_text() -> None:
    restarts = [Event("Normal", "Restarting", f"Attempt {number} of 3 failed") for number in (1, 2)]
    other = Event("Warning", "RayUnreachable", "Ray's job API does not answer: connection refused")
    names = {get_event_name(JOB, event) for event in (*restarts, other, unreachable(1), unreachable(20))}
    assert len(names) == 4, "only the numbers of RayUnreachable differ"


async def test_a_job_that_is_gone_leaves_nothing(writer: EventWriter) -> None:
    await writer.restore(JOB, JOB.status, o.NOW)
    await writer.write(JOB, [unreachable(1)], o.NOW)
    writer.forget((JOB.namespace, JOB.name))
    assert not writer._buckets
    assert not writer._restored
    assert not writer._uids
