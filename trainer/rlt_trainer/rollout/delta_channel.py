"""The weight channel between pods on CPUs: what changed since the last transfer, over gloo."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from rlt_trainer.rollout.buckets import Bucket
from rlt_trainer.rollout.group_channel import GroupChannel
from rlt_trainer.rollout.weight_channel import GroupAddress
from rlt_trainer.rollout.weight_delta import Decoder, Encoder, Message


class DeltaChannel(GroupChannel):
    """A GroupChannel whose first transfer has all bytes, and later ones the changes.

    Each end holds a copy of the weights that were sent. A member that joins needs a new group, whose first transfer has
    all bytes again.
    """

    def __init__(self, address: GroupAddress, device: torch.device, store: TCPStore | None = None) -> None:
        super().__init__(address, device, store)
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._memory = torch.empty(0, dtype=torch.uint8)

    def allocate(self, size: int) -> Tensor:
        """As in WeightSender. All buckets use the same memory: the encoder copies what it keeps."""
        if len(self._memory) < size:
            self._memory = torch.zeros(size, dtype=torch.uint8)
        return self._memory[:size]

    def put(self, bucket: Bucket | None) -> None:
        """As in WeightSender."""
        if bucket is None:
            self._put_header(self._encoder.end(self.version))
            return
        message, data = self._encoder.encode(bucket)
        self._put_header(message)
        if message.size:
            self._broadcast(torch.from_numpy(data))

    def get(self) -> Bucket | None:
        """As in WeightReceiver. It continues after a damaged bucket, as GroupChannel's."""
        header = self._get_header()
        if not isinstance(header, Message):
            self.received = self._decoder.end(header)
            return None
        data = np.empty(header.size, np.uint8)
        if header.size:
            self._broadcast(torch.from_numpy(data))
        return self._decoder.decode(header, data)


def join_group(address: GroupAddress, device: torch.device, store: TCPStore | None = None) -> GroupChannel:
    """Join the group at `address`. Arguments and errors are GroupChannel's.

    On GPUs NCCL sends all bytes: at its rates that takes less time than to find the changes in the memory of the host.
    """
    return DeltaChannel(address, device, store) if device.type == "cpu" else GroupChannel(address, device, store)
