"""Buckets of weights, and their transfer to other processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch import Tensor
from torch.distributed import DistError

from rlt_trainer.cluster.rendezvous import listen_for_ranks
from rlt_trainer.rollout import group_channel
from rlt_trainer.rollout.buckets import Bucket, pack_buckets
from rlt_trainer.rollout.group_channel import GroupChannel
from rlt_trainer.rollout.weight_channel import GroupAddress, Received, receive_weights, send_weights

CPU = torch.device("cpu")
HOST = "127.0.0.1"


def weights() -> dict[str, Tensor]:
    """Tensors of several sizes and dtypes, one with an odd number of bytes, one larger than a bucket."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 5), "b": (7,), "c": (100, 9), "d": (), "e": (11, 2)}
    types = {"b": torch.bfloat16, "e": torch.float16}
    return {
        name: torch.randn(shape, generator=generator).to(types.get(name, torch.float32))
        for name, shape in shapes.items()
    }


def allocate(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.uint8)


def equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return list(actual) == list(expected) and all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("limit", "count"), [(1, 5), (100, 3), (10**6, 1)])
def test_buckets_are_bounded_and_contain_all_tensors(limit: int, count: int) -> None:
    packed = list(pack_buckets(weights().items(), allocate, limit=limit))
    assert len(packed) == count
    assert all(len(bucket.data) <= limit or len(bucket.layouts) == 1 for bucket in packed)
    assert equal({name: value for bucket in packed for name, value in bucket.unpack()}, weights())


def test_tensors_are_packed_lazily() -> None:
    taken = []

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights().items():
            taken.append(name)
            yield name, tensor

    first = next(iter(pack_buckets(stream(), allocate, limit=100)))
    assert [layout.name for layout in first.layouts] == ["a", "b"]
    assert taken == ["a", "b", "c"]  # the third tensor did not fit in the first bucket


def test_one_changed_bit_changes_the_checksum() -> None:
    bucket = Bucket.pack(list(weights().items()), allocate)
    before = bucket.checksum()
    bucket.data[17] ^= 1
    assert bucket.checksum() != before


def open_channels(receivers: int) -> list[GroupChannel]:
    """Open the sender's and the receivers' ends, in threads of this process."""
    with ThreadPoolExecutor(receivers + 1) as threads:
        return [end.result() for end in start_members(threads, range(receivers + 1), receivers + 1)]


def start_members(threads: ThreadPoolExecutor, members: Iterable[int], size: int) -> list[Future[GroupChannel]]:
    """Let `members` of a group with `size` members join it."""
    store = listen_for_ranks(HOST)
    addresses = [GroupAddress(HOST, store.port, 1, member, size, [HOST] * size) for member in members]
    return [threads.submit(GroupChannel, address, CPU, store if address.member == 0 else None) for address in addresses]


def test_every_receiver_gets_the_weights_of_each_transfer() -> None:
    sender, *receivers = open_channels(2)
    sender.limit = 100
    for factor in (1, 2):
        sent = {name: tensor * factor for name, tensor in weights().items()}
        with ThreadPoolExecutor(2) as threads:
            received = [threads.submit(dict, receive_weights(receiver)) for receiver in receivers]
            send_weights(sent.items(), sender)
            assert all(equal(each.result(), sent) for each in received)


def test_members_do_not_wait_long_for_one_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver starts the engine of this member again, and opens a new channel."""
    monkeypatch.setattr(group_channel, "JOIN_TIMEOUT", timedelta(seconds=1))
    with ThreadPoolExecutor(2) as threads:
        for end in start_members(threads, range(2), 3):
            with pytest.raises(DistError):
                end.result()


def test_a_bucket_with_another_checksum_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = open_channels(1)
    flips = iter([0, 1])  # changes only the receiver's checksum
    checksum = Bucket.checksum
    monkeypatch.setattr(Bucket, "checksum", lambda bucket: checksum(bucket) ^ next(flips))
    with ThreadPoolExecutor(1) as threads:
        received = threads.submit(dict, receive_weights(receiver))
        sender.version = 7
        send_weights(weights().items(), sender)
        received.result()
    assert receiver.received == Received(7, ("the bucket that starts with a",))


def test_ranks_without_the_channel_consume_the_weights() -> None:
    stream = iter(weights().items())
    send_weights(stream, None)
    assert next(stream, None) is None
