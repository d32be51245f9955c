"""The poller of Ray heads: its pace, and heads that hang, against real HTTP servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import observed as o
import pytest

from rlt_core.ray_http import Head, Request, UnreachableError
from rlt_operator.observation import MIN_PROGRESS_INTERVAL_S, Ray, RayJob
from rlt_operator.ray.poller import (
    INTERVAL_PER_HEAD_S,
    MAX_BACKOFF_S,
    MAX_INTERVAL_S,
    MIN_INTERVAL_S,
    TOLERATED_FAILURES,
    Pace,
    RayPoller,
    Target,
)

KEY = ("demo", "sum")
TARGET = Target(Head("demo", "sum-head-a", "10.0.0.1"), "uid", "sum-99999999")
SILENT = Ray(unreachable="timeout")


def progress(step: int, seconds: float) -> Ray:
    return Ray(job=RayJob("RUNNING"), progress=o.report(step, seconds_per_step=seconds))


def test_a_running_job_is_asked_when_its_next_step_is_expected() -> None:
    pace = Pace()
    assert pace.choose_interval(progress(3, 6.0), 100.0, heads=0) == pytest.approx(6.5)
    assert pace.choose_interval(progress(3, 6.0), 106.5, heads=0) == MIN_PROGRESS_INTERVAL_S, "the step takes longer"


def test_requests_stay_as_long_after_the_end_of_a_step_over_many_steps() -> None:
    pace = Pace()
    now = 0.1
    step_s = 6.0
    for _ in range(50):
        now += pace.choose_interval(progress(int(now / step_s), step_s), now, heads=0) or 0.0
        assert now % step_s == pytest.approx(0.6)


def test_long_steps_are_asked_for_at_the_maximum_interval_and_short_ones_at_the_minimum() -> None:
    assert Pace().choose_interval(progress(3, 600.0), 0.0, heads=0) == MAX_INTERVAL_S
    assert Pace().choose_interval(progress(3, 0.2), 0.0, heads=0) == MIN_PROGRESS_INTERVAL_S


def test_the_last_step_is_asked_for_at_the_minimum_interval() -> None:
    assert Pace().choose_interval(progress(199, 8.0), 0.0, heads=0) == MIN_INTERVAL_S


def test_the_minimum_grows_with_the_number_of_heads() -> None:
    assert Pace().choose_interval(progress(199, 0.2), 0.0, heads=1000) == MIN_INTERVAL_S + 1000 * INTERVAL_PER_HEAD_S


@pytest.mark.parametrize(("heads", "seconds"), [(50, 2.5), (200, 10.0), (600, 30.0), (3000, 30.0)])
def test_many_heads_are_asked_as_often_as_their_progress_is_written(heads: int, seconds: float) -> None:
    assert Pace().choose_interval(progress(3, 1.0), 0.0, heads=heads) == pytest.approx(seconds)


def test_a_head_that_does_not_answer_is_asked_less_often() -> None:
    pace = Pace()
    intervals = [pace.choose_interval(SILENT, 0.0, heads=0) or 0.0 for _ in range(8)]
    assert intervals == sorted(intervals)
    assert (intervals[0], intervals[-1]) == (MIN_INTERVAL_S, MAX_BACKOFF_S)


def test_a_job_that_has_ended_is_not_asked_again() -> None:
    assert Pace().choose_interval(o.ended("SUCCEEDED"), 0.0, heads=0) is None


class Heads:
    """The answers of Ray heads by IP. An address without an answer hangs."""

    def __init__(self) -> None:
        self.status = {"10.0.0.1": "RUNNING"}
        self.fails = 0
        self.asked = asyncio.Event()
        self.requests: list[str] = []

    async def send(self, head: Head, request: Request) -> tuple[int, str]:
        self.requests.append(request.path)
        self.asked.set()
        if head.ip not in self.status:
            await asyncio.Event().wait()
        if self.fails:
            self.fails -= 1
            raise UnreachableError("timeout")
        if request.path == "/progress":
            return 404, ""
        return 200, f'{{"status": "{self.status[head.ip]}"}}'


@pytest.fixture
async def heads() -> Heads:
    return Heads()


@pytest.fixture
async def woken() -> asyncio.Queue[tuple[str, str]]:
    return asyncio.Queue()


@pytest.fixture
async def poller(heads: Heads, woken: asyncio.Queue[tuple[str, str]]) -> AsyncIterator[RayPoller]:
    poller = RayPoller(heads.send, woken.put_nowait)
    yield poller
    await poller.close()


async def test_an_answer_wakes_the_job(poller: RayPoller, woken: asyncio.Queue[tuple[str, str]]) -> None:
    assert poller.poll(KEY, TARGET) is None
    assert await woken.get() == KEY
    assert poller.poll(KEY, TARGET) == Ray(job=RayJob("RUNNING"))


async def test_500_heads_that_hang_delay_no_other_job(poller: RayPoller, woken: asyncio.Queue[tuple[str, str]]) -> None:
    for number in range(500):
        head = Head("tenant", f"hung-{number}", f"10.1.{number // 256}.{number % 256}")
        poller.poll(("tenant", f"hung-{number}"), replace(TARGET, head=head))
    poller.poll(KEY, TARGET)
    assert await woken.get() == KEY


async def test_a_nudge_asks_at_once(heads: Heads, poller: RayPoller, woken: asyncio.Queue[tuple[str, str]]) -> None:
    poller.poll(KEY, TARGET)
    await woken.get()
    heads.status["10.0.0.1"] = "STOPPED"
    poller.nudge(KEY)
    await woken.get()
    answer = poller.poll(KEY, TARGET)
    assert answer
    assert answer.job
    assert answer.job.status == "STOPPED"


async def test_a_single_failure_after_an_answer_is_tolerated(
    heads: Heads, poller: RayPoller, woken: asyncio.Queue[tuple[str, str]]
) -> None:
    poller.poll(KEY, TARGET)
    await woken.get()
    heads.fails = 10 * TOLERATED_FAILURES
    for _ in range(TOLERATED_FAILURES - 1):
        heads.asked.clear()
        poller.nudge(KEY)
        await heads.asked.wait()
        answer = poller.poll(KEY, TARGET)
        assert answer
        assert answer.unreachable is None
    poller.nudge(KEY)
    await woken.get()
    answer = poller.poll(KEY, TARGET)
    assert answer
    assert answer.unreachable == "timeout"


async def test_another_head_pod_has_no_answer_of_the_previous_one(
    poller: RayPoller, woken: asyncio.Queue[tuple[str, str]]
) -> None:
    poller.poll(KEY, TARGET)
    await woken.get()
    assert poller.poll(KEY, replace(TARGET, pod_uid="another", head=replace(TARGET.head, ip="10.0.0.2"))) is None
    assert poller.poll(KEY, None) is None


async def test_an_answer_that_breaks_the_parser_does_not_end_the_polling(woken: asyncio.Queue[tuple[str, str]]) -> None:
    breaks = [True]

    async def send(head: Head, request: Request) -> tuple[int, str]:
        if breaks:
            raise RecursionError
        return (404, "") if request.path == "/progress" else (200, '{"status": "RUNNING"}')

    poller = RayPoller(send, woken.put_nowait)
    poller.poll(KEY, TARGET)
    await woken.get()
    assert poller.poll(KEY, TARGET) == Ray(unreachable="its answer cannot be read: RecursionError")
    breaks.clear()
    poller.nudge(KEY)
    await woken.get()
    assert poller.poll(KEY, TARGET) == Ray(job=RayJob("RUNNING"))
    await poller.close()
