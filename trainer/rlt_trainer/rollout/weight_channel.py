"""Transfer of weights from rank 0 of training to engines in other processes: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ProcessGroupGloo, TCPStore

from rlt_trainer.rollout.buckets import BUCKET_BYTES, Bucket, Layout, pack_buckets
from rlt_trainer.rollout.weight_sync import StaleWeightsError

TRANSFER_TIMEOUT = timedelta(minutes=10)
"""Timeout of each operation (verl's nccl_timeout)."""


@dataclass(frozen=True)
class Header:
    """The description of a bucket, sent before it."""

    layouts: tuple[Layout, ...]
    size: int
    checksum: int


class WeightChannel:
    """A process group of one sender (rank 0) and all engines, separate from that of training.

    Each end holds one bucket at a time. A receiver also holds the tensors that its engine has not loaded yet.
    """

    def __init__(self, address: str, port: int, *, rank: int, size: int, device: torch.device) -> None:
        store = TCPStore(address, port, size, is_master=rank == 0, timeout=TRANSFER_TIMEOUT)
        self._device = device
        self._group = ProcessGroup(store, rank, size)
        gloo = ProcessGroupGloo(PrefixStore("gloo", store), rank, size, TRANSFER_TIMEOUT)
        self._group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
        if device.type == "cuda":
            from torch._C._distributed_c10d import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            options._timeout = TRANSFER_TIMEOUT
            nccl = ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
            self._group._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, nccl)

    def send(self, weights: Iterable[tuple[str, Tensor]], *, limit: int = BUCKET_BYTES) -> None:
        """Send all of `weights` in buckets of at most `limit` bytes."""
        for bucket in pack_buckets(weights, limit=limit):
            self._send_header(Header(bucket.layouts, len(bucket.data), bucket.checksum()))
            self._broadcast(bucket.data)
        self._send_header(None)

    def receive(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors as they arrive. Raises StaleWeightsError if the checksum of a bucket differs.

        It raises after the last bucket: the sender and the other receivers would wait for a receiver that stops.
        """
        damaged: list[str] = []
        while header := self._receive_header():
            bucket = Bucket(header.layouts, torch.empty(header.size, dtype=torch.uint8, device=self._device))
            self._broadcast(bucket.data)
            if bucket.checksum() != header.checksum:
                damaged.append(header.layouts[0].name)
            yield from bucket.unpack()
        if damaged:
            raise StaleWeightsError(
                f"Stale weights in the rollout engine: the checksums of the buckets that start with "
                f"{', '.join(damaged)} differ from those sent. Check the network between the worker groups; the run "
                "can be resumed from its latest checkpoint."
            )

    def _send_header(self, header: Header | None) -> None:
        text = torch.frombuffer(bytearray(pickle.dumps(header)), dtype=torch.uint8)
        self._broadcast(torch.tensor([len(text)]))
        self._broadcast(text)

    def _receive_header(self) -> Header | None:
        size = torch.zeros(1, dtype=torch.int64)
        self._broadcast(size)
        text = torch.empty(int(size), dtype=torch.uint8)
        self._broadcast(text)
        header: Header | None = pickle.loads(text.numpy().tobytes())
        return header

    def _broadcast(self, tensor: Tensor) -> None:
        self._group.broadcast(tensor, 0).wait()


def send_weights(weights: Iterable[tuple[str, Tensor]], channel: WeightChannel | None) -> None:
    """Send `weights` on rank 0, which has the channel. The other ranks consume them: gathering is collective."""
    if channel is not None:
        channel.send(weights)
        return
    for _ in weights:
        pass
