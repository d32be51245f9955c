"""A job on which the operator fails, or that blocks it, is reported and delayed. Other jobs are not."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import observed as o
import pytest
from reconcile_loop import KEY, STATUS, FakeApi, Loop, send

from rlt_api.status.conditions import ConditionType as C
from rlt_core.kubernetes.client import ApiError
from rlt_core.ray_http import Head
from rlt_operator.conditions import find_condition
from rlt_operator.observation import Observed, Ray, RayJob
from rlt_operator.ray.poller import RayPoller, Target
from rlt_operator.reconcile import blocking, plan
from rlt_operator.reconcile.blocking import measure_blocking
from rlt_operator.reconcile.failures import MAX_QUARANTINE_S
from rlt_operator.reconcile.isolation import reconcile_isolated
from rlt_operator.reconcile.observe import Sources
from rlt_operator.work_queue import Key, Result

SECRET = "correct-horse"
EARLIER = datetime.now(UTC) - timedelta(hours=1)
ENV = [{"name": "PASSWORD", "value": SECRET}]
SPEC: dict[str, Any] = {**o.COMMAND_SPEC, "cluster": {**o.SPEC["cluster"], "env": ENV}}


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(FakeApi())
    monkeypatch.setattr("time.monotonic", lambda: loop.seconds)
    return loop


def fail(observed: Observed, spec: object, now: object) -> None:
    """A lifecycle step that raises."""
    raise ZeroDivisionError(f"PASSWORD={SECRET} {'x' * 5000}")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "READY_STEPS", [fail])


async def run_after(loop: Loop, seconds: float) -> Result:
    loop.seconds += seconds
    loop.deliver()
    result = await reconcile_isolated(loop.sources, send, loop.events, loop.failures, KEY)
    await loop.events.flush()
    return result


def stalled(loop: Loop) -> tuple[str, str, str]:
    found = find_condition(loop.api.status, C.STALLED)
    assert found
    return found.status, found.reason, found.message


@pytest.mark.usefixtures("broken")
async def test_an_exception_is_reported_masked_and_bounded(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.api.objects[next(iter(loop.api.objects))]["spec"] = SPEC
    await run_after(loop, 0)
    status, reason, message = stalled(loop)
    assert (status, reason) == ("True", "InternalError")
    assert "ZeroDivisionError" in message
    assert "The operator retries at" in message
    assert SECRET not in message
    assert len(message) < 2000
    assert loop.api.status.message == message
    assert loop.api.events == {"InternalError": 1}
    assert "demo/sum" in caplog.text


@pytest.mark.usefixtures("broken")
async def test_repeated_exceptions_lengthen_the_delay_to_its_maximum(loop: Loop) -> None:
    delays = [(await run_after(loop, 0)).requeue_after or 0.0]
    for _ in range(12):
        assert (await run_after(loop, delays[-1] / 2)).requeue_after == delays[-1] / 2, "it is not retried before"
        delays.append((await run_after(loop, delays[-1])).requeue_after or 0.0)
    assert delays[:4] == [2, 4, 8, 16]
    assert delays[-1] == MAX_QUARANTINE_S


async def test_a_change_of_the_job_ends_the_delay_and_a_success_the_report(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = plan.READY_STEPS
    monkeypatch.setattr(plan, "READY_STEPS", [fail])
    await run_after(loop, 0)
    monkeypatch.setattr(plan, "READY_STEPS", steps)
    job = loop.api.objects[next(iter(loop.api.objects))]
    job["metadata"]["resourceVersion"] = "1000"
    loop.deliver()
    await reconcile_isolated(loop.sources, send, loop.events, loop.failures, KEY)
    assert find_condition(loop.api.status, C.STALLED) is None


@pytest.mark.usefixtures("broken")
async def test_an_exception_whose_report_fails_is_retried(loop: Loop) -> None:
    loop.api.errors[STATUS] = ApiError(500, "no")
    assert (await run_after(loop, 0)).requeue_after == 2
    assert (await run_after(loop, 2)).requeue_after == 4


async def test_a_job_that_blocks_is_delayed_at_once_and_reported_the_second_time(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocking, "MAX_BLOCKING_S", 0.0)
    assert (await run_after(loop, 0)).requeue_after == 2
    assert "reconciliation of demo/sum blocked all jobs for" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING
    assert find_condition(loop.api.status, C.STALLED) is None
    loop.api.objects[next(iter(loop.api.objects))]["metadata"]["resourceVersion"] = "1000"
    assert (await run_after(loop, 1)).requeue_after == 1, "a change of the job does not end the delay"
    assert (await run_after(loop, 1)).requeue_after == 4
    condition = find_condition(loop.api.status, C.RECONCILING)
    assert condition
    assert (condition.status, condition.reason) == ("True", "InternalError")
    monkeypatch.setattr(blocking, "MAX_BLOCKING_S", 1000.0)
    await run_after(loop, 4)
    assert loop.failures.count_wait(KEY) is None


async def test_an_answer_on_which_the_operator_fails_counts_as_none() -> None:
    poller = RayPoller(send, lambda key: None)
    poller.poll(KEY, Target(Head("demo", "sum-head-a", "10.0.0.1"), "uid", "sum-99999999"))
    assert not poller.distrust(KEY, "OverflowError")
    poller._answers[KEY] = Ray(job=RayJob("RUNNING", start_ms=10**20))
    assert poller.distrust(KEY, "OverflowError")
    answer = poller.poll(KEY, poller._targets[KEY])
    assert answer == Ray(unreachable="its answer cannot be used: OverflowError")
    assert not poller.distrust(KEY, "OverflowError"), "the exception has another cause"
    assert o.after(replace(o.STARTED, ray=answer))
    await poller.close()


async def test_only_cpu_time_between_two_awaits_counts() -> None:
    async def work() -> str:
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass
        await asyncio.sleep(0)
        return "done"

    result, seconds = await measure_blocking(work(), "demo/sum")
    assert result == "done"
    assert seconds >= 0.05


async def test_a_cancellation_reaches_the_measured_coroutine() -> None:
    started = asyncio.Event()
    cancelled = asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def measure() -> None:
        await measure_blocking(work(), "demo/sum")

    task = asyncio.create_task(measure())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


BLOCKING = """
import asyncio, sys
from rlt_operator.reconcile import blocking

async def work():
    sum(range(100_000_000))  # holds the interpreter's lock; the kernel samples the CPU time of the timer
    print("the end", file=sys.stderr, flush=True)

blocking.MAX_BLOCKING_S = 0.1
asyncio.run(blocking.measure_blocking(work(), "demo/sum"))
"""


def test_the_job_is_named_in_the_log_before_its_plan_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKING], capture_output=True, text=True, check=True)
    before, ended, after = done.stderr.partition("the end")
    assert ended
    assert (before.count("demo/sum"), after.count("demo/sum")) == (1, 0)
    assert len(before) < 5000


UNUSABLE = Ray(job=RayJob("RUNNING", start_ms=10**20))
"""An answer of a head on which a plan raises."""


@pytest.mark.parametrize("wanted", ["suspend", "cancel", "activeDeadlineSeconds"])
async def test_no_answer_of_a_head_prevents_the_end_of_its_job(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    started = o.after(replace(o.READY, ray=Ray(job=RayJob("RUNNING"))), now=EARLIER)
    started = o.suspend(started) if wanted == "suspend" else started
    started = o.changed(started, active_deadline_seconds=60) if wanted == "activeDeadlineSeconds" else started
    started = replace(started, job=replace(started.job, cancel_requested=wanted == "cancel"))
    poller = loop.sources.poller
    poller._answers[KEY] = UNUSABLE

    async def observe(sources: Sources, key: Key) -> Observed:
        observed: Observed = replace(started, ray=poller.poll(key, None))
        return observed

    monkeypatch.setattr("rlt_operator.reconcile.reconcile.observe", observe)
    with pytest.raises((OverflowError, OSError)):
        plan.plan(replace(started, ray=UNUSABLE), datetime.now(UTC))
    assert (await run_after(loop, 0)).requeue_after == 0
    await run_after(loop, 0)
    attempt = loop.api.status.current_attempt
    assert attempt
    assert attempt.stop
