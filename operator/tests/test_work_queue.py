"""WorkQueue: which reconciliation follows at once, and that many woken jobs leave the event loop to others."""

from __future__ import annotations

import asyncio
import itertools

from rlt_operator import metrics, work_queue
from rlt_operator.work_queue import Key, Result, WorkQueue


async def run_queue(reconcile: work_queue.Reconcile, jobs: int = 1) -> WorkQueue:
    queue = WorkQueue(reconcile)
    for number in range(jobs):
        queue.wake(("demo", f"job-{number}"))
    queue.start()
    return queue


async def test_a_reconciliation_that_asks_for_the_next_one_is_followed_at_once() -> None:
    """Without the minimum interval, but not forever."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    enough = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        times.append(loop.time())
        if len(times) == work_queue.MAX_IMMEDIATE + 2:
            enough.set()
        return Result(requeue_after=0)

    queue = await run_queue(reconcile)
    await enough.wait()
    await queue.close()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[-1] >= work_queue.MIN_INTERVAL_S / 2 > max(gaps[: work_queue.MAX_IMMEDIATE])


async def test_one_reconciliation_starts_in_each_pass_of_the_event_loop() -> None:
    started: list[Key] = []
    done = asyncio.Event()
    passes: list[int] = []

    async def reconcile(key: Key) -> Result:
        started.append(key)
        if len(started) == 50:
            done.set()
        return Result()

    async def count_passes() -> None:
        while not done.is_set():
            passes.append(len(started))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_passes())
    queue = await run_queue(reconcile, jobs=50)
    await done.wait()
    await counting
    await queue.close()
    assert max(later - earlier for earlier, later in itertools.pairwise(passes)) <= 1


async def test_depth_and_age_count_jobs_whose_reconciliation_is_not_complete() -> None:
    may_end = asyncio.Event()
    began = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        if key[1] == "job-1":
            began.set()
            await may_end.wait()
        return Result()

    queue = WorkQueue(reconcile)
    for number in range(2):
        queue.wake(("demo", f"job-{number}"))
    assert read("rlt_operator_queue_depth") == read("rlt_operator_queue_oldest_seconds") == 0, "on standby"
    queue.start()
    assert read("rlt_operator_queue_depth") == 2
    waited = read("rlt_operator_queue_wait_seconds_count")
    await began.wait()
    assert read("rlt_operator_queue_depth") == 0
    assert read("rlt_operator_queue_oldest_seconds") > 0
    assert read("rlt_operator_queue_wait_seconds_count") == waited + 2
    may_end.set()
    await asyncio.sleep(0)
    assert read("rlt_operator_queue_oldest_seconds") == 0
    await queue.close()


async def test_a_job_whose_reconciliation_raises_ages_until_one_succeeds() -> None:
    failed = asyncio.Event()
    errors = read("rlt_operator_reconcile_errors_total", error="ZeroDivisionError")

    async def reconcile(key: Key) -> Result:
        failed.set()
        raise ZeroDivisionError

    queue = await run_queue(reconcile)
    await failed.wait()
    await asyncio.sleep(0)
    assert read("rlt_operator_queue_oldest_seconds") > 0
    assert read("rlt_operator_reconcile_errors_total", error="ZeroDivisionError") == errors + 1
    await queue.close()


async def test_a_standby_keeps_only_the_keys_of_jobs_that_exist() -> None:
    existing = {("demo", f"job-{number}") for number in range(3)}
    reconciled: list[Key] = []
    done = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        reconciled.append(key)
        if len(reconciled) == 1:
            done.set()
        return Result()

    queue = WorkQueue(reconcile, existing.__contains__)
    for key in list(existing):
        queue.wake(key)
    assert len(asyncio.all_tasks()) == 1, "no job has a task yet"
    existing -= {("demo", "job-0"), ("demo", "job-1")}
    for number in range(2):
        queue.wake(("demo", f"job-{number}"))
    queue.start()
    await done.wait()
    await queue.close()
    assert reconciled == [("demo", "job-2")]


def read(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0
