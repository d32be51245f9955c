"""The weight channel to other pods: broadcasts over gloo or NCCL, with a checksum for each bucket."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import xxhash
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ProcessGroupGloo, Store, TCPStore
from torch.distributed import DistError

from rlt_trainer.cluster.connections import watch_connections
from rlt_trainer.cluster.rendezvous import Rendezvous
from rlt_trainer.rollout.buckets import BUCKET_BYTES, Bucket, Layout
from rlt_trainer.rollout.weight_channel import TRANSFER_TIMEOUT, GroupAddress, Received
from rlt_trainer.rollout.weight_sync import StaleWeightsError, describe_damage

JOIN_TIMEOUT = timedelta(minutes=1)
"""How long the members wait for the others."""
CONNECT_ATTEMPTS = 5
"""How often gloo tries to connect two members, each time until its timeout (measured with torch 2.11). It does so for a
member that has met the others and then ends with its pod: no host answers at its address."""
CONNECT_TIMEOUT = timedelta(seconds=5)
"""How long the driver waits for the store. It has none if the process of member 0 has ended, which ends the run."""


RESULT = "result"
"""Key of the meeting's result, which is set once: COMPLETE or INCOMPLETE."""
COMPLETE = "complete"
INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class Header:
    """The description of a bucket, sent before it."""

    layouts: tuple[Layout, ...]
    size: int


@dataclass(frozen=True)
class End:
    """The message after the last bucket."""

    version: int
    """Of the weights."""
    checksums: tuple[int, ...]
    """Of all buckets."""


class GroupChannel:
    """The WeightSender or a WeightReceiver: member 0 of a process group sends to the devices of all engines.

    The group is separate from the training's. A broadcast of gloo follows a tree, so that only neighbors of a member
    that ended get an error, and the others wait. Each member that gets one leaves the group: its connections close,
    and the members that wait for it get an error in turn. A member that ends before it joins has no connections: the
    members first meet at the store, where the driver reports it (`end_meeting`).
    """

    def __init__(self, address: GroupAddress, device: torch.device, store: TCPStore | None = None) -> None:
        """Join the group. Returns when all members have joined. Raises DistError if one ended, or after JOIN_TIMEOUT.

        `store`: of member 0, which listens at the address. The other members connect to it.
        """
        member = address.member
        size = address.size
        connection = store or Rendezvous(address.host, address.port).connect(JOIN_TIMEOUT)
        connection.set_timeout(JOIN_TIMEOUT)
        meeting = _build_meeting(connection, address)
        if meeting.add("members", 1) == size:
            meeting.compare_set(RESULT, "", COMPLETE)
        if meeting.get(RESULT).decode() != COMPLETE:
            raise DistError("a rollout engine ended before it joined the group that transfers weights")
        self._device = device
        self._checksums: list[Tensor] = []
        self._names: list[str] = []
        """The first weight of each bucket that was received."""
        self.limit = BUCKET_BYTES
        self.version = 0
        group = ProcessGroup(meeting, member, size)
        gloo = ProcessGroupGloo(PrefixStore("gloo", meeting), member, size, JOIN_TIMEOUT / CONNECT_ATTEMPTS)
        gloo._set_default_timeout(TRANSFER_TIMEOUT)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
        if device.type == "cuda":
            from torch._C._distributed_c10d import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            options._timeout = TRANSFER_TIMEOUT
            nccl = ProcessGroupNCCL(PrefixStore("nccl", meeting), member, size, options)
            group._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, nccl)
        connection.set_timeout(TRANSFER_TIMEOUT)
        self._group: ProcessGroup | None = group
        watch_connections(set(address.nodes) - {address.nodes[address.member]})

    def allocate(self, size: int) -> Tensor:
        """As in WeightSender."""
        return torch.zeros(size, dtype=torch.uint8, device=self._device)

    def put(self, bucket: Bucket | None) -> None:
        """As in WeightSender."""
        if bucket is None:
            self._put_header(End(self.version, self._read_checksums()))
            return
        self._checksums.append(bucket.checksum())
        self._put_header(Header(bucket.layouts, len(bucket.data)))
        self._broadcast(bucket.data)

    def get(self) -> Bucket | None:
        """As in WeightReceiver. It continues after a damaged bucket: the others would wait for a member that stops."""
        header = self._get_header()
        if isinstance(header, End):
            received = zip(self._names, self._read_checksums(), header.checksums, strict=True)
            damaged = [name for name, actual, expected in received if actual != expected]
            self._names = []
            self.received = Received(header.version, tuple(f"the bucket that starts with {name}" for name in damaged))
            return None
        bucket = Bucket(header.layouts, torch.empty(header.size, dtype=torch.uint8, device=self._device))
        self._broadcast(bucket.data)
        self._checksums.append(bucket.checksum())
        self._names.append(header.layouts[0].name)
        return bucket

    def close(self) -> None:
        """Leave the group. The other members get an error."""
        self._group = None

    def _read_checksums(self) -> tuple[int, ...]:
        """Return the checksums of this transfer's buckets. The host waits for the device once, and not per bucket."""
        values = torch.stack(self._checksums).tolist() if self._checksums else []
        self._checksums = []
        return tuple(values)

    def _put_header(self, header: object) -> None:
        text = bytearray(pickle.dumps(header))
        self._broadcast(torch.tensor([len(text), _digest(text)]))
        self._broadcast(torch.frombuffer(text, dtype=torch.uint8))

    def _get_header(self) -> Any:
        """Receive what `_put_header` sends. Raises StaleWeightsError, and leaves the group, if it is damaged."""
        start = torch.zeros(2, dtype=torch.int64)
        self._broadcast(start)
        size, digest = start.tolist()
        text = torch.empty(size, dtype=torch.uint8)
        self._broadcast(text)
        content = text.numpy().tobytes()
        if _digest(content) != digest:
            self.close()
            raise StaleWeightsError(
                describe_damage([Received(self.version, ("the header of a bucket",))], self.version)
            )
        return pickle.loads(content)

    def _broadcast(self, tensor: Tensor) -> None:
        assert self._group is not None
        try:
            self._group.broadcast(tensor, 0).wait()
        except Exception:
            self.close()
            raise


def _digest(text: bytes | bytearray) -> int:
    return int.from_bytes(xxhash.xxh3_64_digest(text), "big", signed=True)


def end_meeting(address: GroupAddress) -> None:
    """End the wait of the group's members for one that has ended. Raises DistError if the store does not answer."""
    store = Rendezvous(address.host, address.port).connect(CONNECT_TIMEOUT)
    _build_meeting(store, address).compare_set(RESULT, "", INCOMPLETE)


def _build_meeting(store: Store, address: GroupAddress) -> PrefixStore:
    return PrefixStore(f"weights/{address.version}", store)
