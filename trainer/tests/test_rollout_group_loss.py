"""A member of the group that transfers weights is killed: the others get an error at once, not after the timeout."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
from ranks import TIMEOUT_S, run_ranks
from torch import Tensor

from rlt_trainer.cluster.rendezvous import Rendezvous, listen_for_ranks
from rlt_trainer.rollout.delta_channel import join_group
from rlt_trainer.rollout.weight_channel import TRANSFER_TIMEOUT, GroupAddress, receive_weights, send_weights

HOST = "127.0.0.1"
RECEIVERS = 4
SIZE = RECEIVERS + 1
BUCKETS = 6
"""One for each tensor."""
POINTS = {"before the header": 0, "between buckets": BUCKETS // 2, "after the last bucket": BUCKETS}
"""When a member is killed: the number of buckets that it has received of the second transfer."""


@pytest.mark.slow
@pytest.mark.parametrize("killed", range(1, SIZE))
@pytest.mark.parametrize("received", POINTS.values(), ids=POINTS)
def test_the_other_members_of_a_killed_one_end(killed: int, received: int) -> None:
    assert timedelta(seconds=TIMEOUT_S) < TRANSFER_TIMEOUT
    store = listen_for_ranks(HOST)
    transfers = run_ranks(run_member, [(store.port, member, killed, received) for member in range(SIZE)])
    assert [member for member, count in enumerate(transfers) if count is None] == [killed]
    complete = {count for count in transfers if count is not None}
    assert complete <= {1, 2}, "the third transfer has no complete group"


def run_member(port: int, member: int, killed: int, received: int) -> int | None:
    """Take part in transfers until one fails. Returns the number of complete ones; None if this member was killed."""
    if member == killed:
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
    torch.set_num_threads(1)
    channel = join_group(GroupAddress(HOST, port, 1, member, SIZE, [HOST] * SIZE), torch.device("cpu"))
    channel.limit = 1
    complete = 0
    try:
        while True:
            if member == 0:
                send_weights(build_weights(), channel)
            elif member == killed and complete == 1:
                for _ in range(received):
                    channel.get()
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                assert [name for name, _ in receive_weights(channel)] == [name for name, _ in build_weights()]
            complete += 1
    except RuntimeError:
        ended = Rendezvous(HOST, port).connect(timedelta(seconds=TIMEOUT_S))
        if ended.add("ended", 1) == SIZE - 1:
            ended.set("all have ended", "")
        ended.wait(["all have ended"])  # the process and its channel exist until then, as in an engine
        return complete


def build_weights() -> Iterator[tuple[str, Tensor]]:
    for number in range(BUCKETS):
        yield f"layers.{number}", torch.zeros(100_000)
