"""The order of requests that wait, and who gets a slot: no namespace delays another one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rlt_core.kubernetes.fair_queue import OWN, FairQueue, Flow, Urgency
from rlt_core.kubernetes.fair_slots import FairSlots, requests_of, set_urgency

READ = 1
WRITE = 4


def drain(queue: FairQueue[str]) -> list[str]:
    order: list[str] = []
    while found := queue.pop(lambda flow: True):
        order.append(found[1])
    return order


def test_a_single_request_is_served_second_beside_600_of_another_namespace() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(600):
        queue.push(Flow("a"), WRITE, f"a-{number}")
    queue.push(Flow("b"), WRITE, "b")
    order = drain(queue)
    assert order.index("b") == 1
    assert [item for item in order if item != "b"] == [f"a-{number}" for number in range(600)]


def test_namespaces_spend_the_same_in_a_round() -> None:
    """Four reads cost as much as a write."""
    queue: FairQueue[str] = FairQueue()
    for _ in range(8):
        queue.push(Flow("reads"), READ, "read")
        queue.push(Flow("writes"), WRITE, "write")
    order = drain(queue)
    assert order[:10] == ["read"] * 4 + ["write"] + ["read"] * 4 + ["write"]


def test_stops_go_before_and_progress_goes_after_the_others_of_a_namespace() -> None:
    queue: FairQueue[str] = FairQueue()
    for urgency in (Urgency.PROGRESS, Urgency.NORMAL, Urgency.STOP):
        queue.push(Flow("a", urgency), READ, urgency.name)
    assert drain(queue) == ["STOP", "NORMAL", "PROGRESS"]


def test_requests_of_no_namespace_go_first() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(Flow("a", Urgency.STOP), READ, "a")
    queue.push(OWN, READ, "own")
    assert drain(queue) == ["own", "a"]


def test_a_namespace_that_may_not_start_is_skipped() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(Flow("a"), READ, "a")
    queue.push(Flow("b"), READ, "b")
    assert queue.pop(lambda flow: flow.namespace != "a") == (Flow("b"), "b")
    assert queue.pop(lambda flow: flow.namespace != "a") is None
    assert drain(queue) == ["a"]


class Requests:
    """Requests that hold their slots until they are released."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.held: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._end = asyncio.Event()

    async def start(self, namespace: str | None, count: int, urgency: Urgency = Urgency.NORMAL) -> None:
        with requests_of(namespace):
            self.tasks += [asyncio.create_task(self._send(f"{namespace}", urgency)) for _ in range(count)]
        await asyncio.sleep(0)

    async def _send(self, name: str, urgency: Urgency) -> None:
        set_urgency(urgency)
        async with self.slots.hold():
            self.held.append(name)
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def requests() -> Requests:
    return Requests(FairSlots(total=8, reserved=2, of_a_namespace=5))


async def test_one_namespace_leaves_slots_to_the_others(requests: Requests) -> None:
    await requests.start("a", 600)
    await requests.start("b", 1)
    assert requests.held == ["a"] * 5 + ["b"]
    await requests.end()


async def test_stops_and_the_operators_own_requests_have_reserved_slots(requests: Requests) -> None:
    await requests.start("a", 600)
    await requests.start("b", 600)
    assert len(requests.held) == 6
    await requests.start("a", 2, Urgency.STOP)
    assert requests.held[6:] == ["a"]
    await requests.start(None, 2)
    assert requests.held[7:] == ["None"]
    await requests.end()
    assert len(requests.held) == 1204


async def test_a_cancelled_request_frees_its_place_and_its_slot(requests: Requests) -> None:
    await requests.start("a", 7)
    for task in (requests.tasks[5], requests.tasks[4]):  # one waits, and one holds a slot
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.sleep(0)
    assert len(requests.held) == 6
    await requests.end()
    assert len(requests.held) == 6


async def test_a_request_that_is_cancelled_as_it_gets_its_slot_frees_it() -> None:
    requests = Requests(FairSlots(total=1, reserved=0, of_a_namespace=1))
    await requests.start("a", 3)
    requests.tasks[0].cancel()
    await asyncio.sleep(0)  # the first one releases its slot to the second one
    requests.tasks[1].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(requests.held) == 2
    await requests.end()
