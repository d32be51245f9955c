"""The weight channel within a pod: shared memory on CPUs, CUDA IPC handles on GPUs. No weight is copied on its way.

On GPUs both processes must use the same device.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
from typing import Any

import torch
from torch import Tensor

from rlt_trainer.rollout.buckets import BUCKET_BYTES, Bucket
from rlt_trainer.rollout.shared_blocks import BlockMappings, BlockPool, BlockState
from rlt_trainer.rollout.weight_channel import TRANSFER_TIMEOUT, Received, SharedAddress

LENGTH_BYTES = 8
CPU_BUCKET_BYTES = 32 * 2**20
"""Maximum size of a bucket on a CPU: the sender keeps the shared memory of about three."""


class SharedSender:
    """The sending end of a train worker. Each transfer is its own connection, so that an engine can restart."""

    def __init__(self, device: torch.device) -> None:
        self.address = SharedAddress(f"rlt-weights-{os.getpid()}-{secrets.token_hex(8)}")
        self._device = device
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind("\0" + self.address.socket)
        self._server.listen(1)
        self._server.settimeout(TRANSFER_TIMEOUT.total_seconds())
        self._connection: socket.socket | None = None
        self._blocks = None if device.type == "cuda" else BlockPool(CPU_BUCKET_BYTES)
        self._pending: list[Tensor] = []
        self.limit = CPU_BUCKET_BYTES if self._blocks else BUCKET_BYTES
        self.version = 0

    def allocate(self, size: int) -> Tensor:
        """As in WeightSender."""
        if self._blocks:
            return self._blocks.allocate(size)
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def put(self, bucket: Bucket | None) -> None:
        """As in WeightSender. Returns when the receiver has loaded the bucket before."""
        if self._connection is None:
            self._connection, _ = self._server.accept()
            self._connection.settimeout(TRANSFER_TIMEOUT.total_seconds())
        state, _ = _receive(self._connection, "engine's process")
        self._pending.clear()
        if bucket is None:
            _send(self._connection, Received(self.version), [])
            self._connection.close()
            self._connection = None
        elif self._blocks:
            self._blocks.update(state)
            exported, files = self._blocks.export()
            _send(self._connection, (bucket.layouts, exported), files)
            self._blocks.end_use()
        else:
            self._pending.append(bucket.data)  # a CUDA IPC handle is valid as long as its sender holds the memory
            _send(self._connection, (bucket.layouts, self._export(bucket.data)), [])

    def close(self) -> None:
        """As in WeightSender."""
        self._server.close()
        if self._connection is not None:
            self._connection.close()
        if self._blocks:
            self._blocks.close()

    def _export(self, data: Tensor) -> Any:
        """Return the arguments of rebuild_cuda_tensor."""
        from torch.multiprocessing.reductions import reduce_tensor

        torch.cuda.synchronize(self._device)  # another process reads what this one's stream writes
        return reduce_tensor(data)[1]  # type: ignore[no-untyped-call]


class SharedReceiver:
    """The receiving end in a process of the engine."""

    def __init__(self, address: SharedAddress, device: torch.device) -> None:
        self._address = address
        self._device = device
        self._connection: socket.socket | None = None
        self._blocks = None if device.type == "cuda" else BlockMappings()

    def get(self) -> Bucket | None:
        """As in WeightReceiver. The call after a bucket confirms that it is loaded."""
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.settimeout(TRANSFER_TIMEOUT.total_seconds())
            self._connection.connect("\0" + self._address.socket)
        elif self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        _send(self._connection, self._blocks.state if self._blocks else BlockState(), [])
        message, files = _receive(self._connection, "train worker")
        if isinstance(message, Received):
            self.received = message
            self.close()
            return None
        layouts, exported = message
        data = self._blocks.open(exported, files) if self._blocks else self._import(exported)
        return Bucket(layouts, data)

    def close(self) -> None:
        """As in WeightReceiver."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _import(self, exported: Any) -> Tensor:
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        arguments = list(exported)
        arguments[6] = self._device.index or 0  # the same device has another number in the sender's process
        data = rebuild_cuda_tensor(*arguments)  # type: ignore[no-untyped-call]
        assert isinstance(data, Tensor)
        return data


def _send(connection: socket.socket, message: object, files: list[int]) -> None:
    text = pickle.dumps(message)
    socket.send_fds(connection, [len(text).to_bytes(LENGTH_BYTES, "big")], files)
    connection.sendall(text)


def _receive(connection: socket.socket, sender: str) -> tuple[Any, list[int]]:
    length, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 1)
    text = bytearray()
    while len(text) < int.from_bytes(length, "big"):
        part = connection.recv(int.from_bytes(length, "big") - len(text))
        if not part:
            break
        text += part
    if not text:
        raise ConnectionError(f"the {sender} ended during a weight sync")
    return pickle.loads(bytes(text)), files
