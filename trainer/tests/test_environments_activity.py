"""Limits of the time without a request."""

from __future__ import annotations

import asyncio
import time

import pytest

from rlt_trainer.environments.activity import Activity


async def test_a_limit_ends_what_waits_without_a_request() -> None:
    with pytest.raises(TimeoutError):
        async with Activity().limit(0.01):
            await asyncio.Event().wait()


async def test_the_time_of_requests_does_not_count_and_starts_again_after_them() -> None:
    async def wait(activity: Activity) -> None:
        async with activity.limit(0.05):
            with activity.request(), activity.request():
                await asyncio.sleep(0.2)
                ended.append(time.monotonic())
            await asyncio.Event().wait()

    ended: list[float] = []
    with pytest.raises(TimeoutError):
        await wait(Activity())
    assert time.monotonic() - ended[0] >= 0.05


async def test_an_inner_limit_suspends_the_outer_one() -> None:
    async def wait(activity: Activity) -> None:
        async with activity.limit(0.05):
            with pytest.raises(TimeoutError):
                async with activity.limit(0.2):
                    await asyncio.Event().wait()
            passed.append(True)
            await asyncio.Event().wait()

    passed: list[bool] = []
    with pytest.raises(TimeoutError):
        await wait(Activity())
    assert passed
