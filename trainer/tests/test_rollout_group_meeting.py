"""A member of the group that transfers weights ends before it joins: the others do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest
import torch
from torch.distributed import DistError

from rlt_trainer.cluster.rendezvous import listen_for_ranks
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess
from rlt_trainer.driver.engines import _Engine, _open_channel
from rlt_trainer.rollout.group_channel import JOIN_TIMEOUT, GroupChannel, end_meeting
from rlt_trainer.rollout.weight_channel import GroupAddress

HOST = "127.0.0.1"
CPU = torch.device("cpu")
TIMEOUT_S = JOIN_TIMEOUT.total_seconds() / 2
"""The others get an error earlier than without the driver's message."""


class Lost:
    """The process of an engine that has ended."""

    async def call(self, method: Callable[..., Any], addresses: list[GroupAddress]) -> None:
        """Raise the error of an actor whose process has ended."""
        raise EngineLostError("the process ended")


def build_addresses(port: int, version: int, size: int) -> list[GroupAddress]:
    return [GroupAddress(HOST, port, version, member, size, [HOST] * size) for member in range(size)]


def test_the_members_of_a_group_without_a_lost_one_get_an_error_and_meet_again() -> None:
    store = listen_for_ranks(HOST)
    sender, receiver, lost = build_addresses(store.port, 1, 3)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(GroupChannel, sender, CPU, store), threads.submit(GroupChannel, receiver, CPU)]
        with pytest.raises(EngineLostError):
            asyncio.run(_open_channel(_Engine(1, cast(EngineProcess, Lost())), [lost]))
        for each in waiting:
            with pytest.raises(DistError, match="ended before it joined"):
                each.result(TIMEOUT_S)
        channels = join(threads, build_addresses(store.port, 2, 2), store)
    for channel in channels:
        channel.close()


def test_a_loss_after_the_meeting_does_not_change_its_result() -> None:
    store = listen_for_ranks(HOST)
    addresses = build_addresses(store.port, 1, 2)
    with ThreadPoolExecutor(2) as threads:
        channels = join(threads, addresses, store)
        end_meeting(addresses[1])
        assert store.get("weights/1/result") == b"complete"
    for channel in channels:
        channel.close()


def join(threads: ThreadPoolExecutor, addresses: list[GroupAddress], store: Any) -> list[GroupChannel]:
    """Join the group as its two members."""
    sender, receiver = addresses
    joining: list[Future[GroupChannel]] = [
        threads.submit(GroupChannel, sender, CPU, store),
        threads.submit(GroupChannel, receiver, CPU),
    ]
    return [each.result(TIMEOUT_S) for each in joining]
