"""The transfer of weights from a train worker to the processes of an engine, one bucket after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor

from rlt_trainer.rollout.buckets import Bucket, pack_buckets

TRANSFER_TIMEOUT = timedelta(minutes=10)
"""Timeout of each operation (verl's nccl_timeout)."""


@dataclass(frozen=True)
class SharedAddress:
    """The sender is a process of the same pod, on the same device."""

    socket: str
    """Name of an abstract Unix socket."""


@dataclass(frozen=True)
class GroupAddress:
    """The sender is member 0 of a process group."""

    host: str
    port: int
    version: int
    """The number of the group. Groups with different members meet at the same store."""
    member: int
    """The number of this receiver."""
    size: int
    """Number of members."""
    nodes: Sequence[str]
    """The addresses of all members' nodes."""


ChannelAddress = SharedAddress | GroupAddress


def parse_address(fields: Mapping[str, Any]) -> ChannelAddress:
    """Build the address from the fields of its class. vLLM passes only plain values to its workers."""
    return SharedAddress(**fields) if "socket" in fields else GroupAddress(**fields)


@dataclass(frozen=True)
class Received:
    """What an engine has after a transfer."""

    version: int
    """Of the weights: the number of the policy's optimizer steps."""
    damaged: tuple[str, ...] = ()
    """The weights and messages that did not arrive as they were sent. The engine must not generate with them."""


def join_received(parts: Sequence[Received]) -> Received:
    """Return what an engine has whose devices have `parts`: the oldest version."""
    damaged = dict.fromkeys(each for part in parts for each in part.damaged)
    return Received(min(part.version for part in parts), tuple(damaged))


class WeightSender(Protocol):
    """The sending end. Its buckets on a GPU exist until the receiver has loaded their layer
    (rlt_api/rules/weight_sync_buffers.py). On a CPU it also has shared memory for the next ones."""

    limit: int
    """Maximum size of a bucket in bytes, unless a single tensor is larger."""
    version: int
    """Of the weights of the next transfer, as in Received."""

    def allocate(self, size: int) -> Tensor:
        """Allocate the memory of the next bucket to send: [size], uint8."""
        ...

    def put(self, bucket: Bucket | None) -> None:
        """Send a bucket in memory from `allocate`. None ends the transfer."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class WeightReceiver(Protocol):
    """The receiving end. It holds the buckets with tensors that its engine has not loaded yet."""

    received: Received
    """The result of the last transfer that has ended."""

    def get(self) -> Bucket | None:
        """Receive the next bucket. None: the transfer has ended, and `received` has its result."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def send_weights(weights: Iterable[tuple[str, Tensor]], channel: WeightSender | None) -> None:
    """Send `weights` in buckets. Without a channel, consume them: gathering is collective."""
    stream = iter(weights)
    try:
        if channel is not None:
            for bucket in pack_buckets(stream, channel.allocate, limit=channel.limit):
                channel.put(bucket)
            channel.put(None)
    finally:
        for _ in stream:  # also after an error: the other ranks gather with this one
            pass


def receive_weights(channel: WeightReceiver) -> Iterator[tuple[str, Tensor]]:
    """Yield names and tensors as they arrive. After the last one, `channel.received` names the damaged ones."""
    while (bucket := channel.get()) is not None:
        yield from bucket.unpack()
