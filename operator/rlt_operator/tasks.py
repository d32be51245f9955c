"""The tasks of a process: started, ended and waited for together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Collection, Coroutine
from typing import Any

from rlt_operator import metrics

LOOP_DELAY_INTERVAL_S = 0.05
"""Interval between measurements of the event loop's delay."""


def stop_on_signal() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def start(work: Coroutine[Any, Any, None], stack: contextlib.AsyncExitStack) -> asyncio.Task[Any]:
    """Start a task that the exit of the stack cancels and waits for."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)
    return task


async def wait_for_first(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait until a task ends. Raises its error: a process exits rather than work with a part that has failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def measure_loop_delay() -> None:
    """Measure until cancelled how long the event loop is blocked, or waits for the CPU."""
    loop = asyncio.get_running_loop()
    while True:
        wanted = loop.time() + LOOP_DELAY_INTERVAL_S
        await asyncio.sleep(LOOP_DELAY_INTERVAL_S)
        metrics.LOOP_DELAY_SECONDS.observe(max(0.0, loop.time() - wanted))
