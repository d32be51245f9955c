"""The way of weights from the training's first rank to engines in other processes: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ProcessGroupGloo, TCPStore

from rlt_trainer.rollout.buckets import BUCKET_BYTES, Bucket, Layout, buckets
from rlt_trainer.rollout.weight_sync import StaleWeightsError

PATIENCE = timedelta(minutes=10)
"""How long one end waits for the other (verl's nccl_timeout)."""


@dataclass(frozen=True)
class Header:
    """What is told of a bucket before it comes."""

    layouts: tuple[Layout, ...]
    size: int
    checksum: int


class WeightChannel:
    """A process group of its own, of one sender (rank 0) and every engine: it is no part of the training's.

    At any time each end holds one bucket, and a receiver what its engine has not yet put into place of it.
    """

    def __init__(self, address: str, port: int, *, rank: int, size: int, device: torch.device) -> None:
        store = TCPStore(address, port, size, is_master=rank == 0, timeout=PATIENCE)
        self._device = device
        self._group = ProcessGroup(store, rank, size)
        gloo = ProcessGroupGloo(PrefixStore("gloo", store), rank, size, PATIENCE)
        self._group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
        if device.type == "cuda":
            from torch._C._distributed_c10d import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            options._timeout = PATIENCE
            nccl = ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
            self._group._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, nccl)

    def send(self, weights: Iterable[tuple[str, Tensor]], *, limit: int = BUCKET_BYTES) -> None:
        """Send all of `weights`, in buckets of at most `limit` bytes."""
        for bucket in buckets(weights, limit=limit):
            self._send_header(Header(bucket.layouts, len(bucket.data), bucket.checksum()))
            self._broadcast(bucket.data)
        self._send_header(None)

    def receive(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors as they come. Raises StaleWeightsError if a bucket did not arrive as it was sent.

        At the end, because the sender and the other receivers would wait forever for one that stops.
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
                f"Stale weights in the rollout engine: buckets with {', '.join(damaged)} and more did not arrive as "
                "they were sent, their checksums differ. Look at the network between the worker groups; the run can "
                "be resumed from its latest checkpoint."
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


def send(weights: Iterable[tuple[str, Tensor]], channel: WeightChannel | None) -> None:
    """What every training rank does with the weights that they gather together: the first has the channel."""
    if channel is not None:
        channel.send(weights)
        return
    for _ in weights:
        pass
