"""WorkQueue: which reconciliation follows at once, and that many woken jobs leave the event loop to others."""

from __future__ import annotations

import asyncio
import itertools

from rlt_operator import work_queue
from rlt_operator.work_queue import Key, Result, WorkQueue


async def run_queue(reconcile: work_queue.Reconcile, jobs: int = 1) -> WorkQueue:
    queue = WorkQueue(reconcile, on_error=lambda: None)
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
