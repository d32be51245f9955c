"""The weight channel within a pod: shared memory on CPUs, CUDA IPC handles on GPUs. No weight is copied on its way.

Memory on CPUs is a memfd, whose file descriptor passes through a Unix socket: it has no name, so that no process can
leave it behind. On GPUs both processes must use the same device.
"""

from __future__ import annotations

import mmap
import os
import pickle
import secrets
import socket
from typing import Any

import torch
from torch import Tensor

from rlt_trainer.rollout.buckets import Bucket, Layout
from rlt_trainer.rollout.weight_channel import TRANSFER_TIMEOUT, SharedAddress

ACKNOWLEDGED = b"\x01"
LENGTH_BYTES = 8


class SharedSender:
    """The sending end of a train worker. Each transfer is a connection of its own, so that an engine can restart."""

    def __init__(self, device: torch.device) -> None:
        self.address = SharedAddress(f"rlt-weights-{os.getpid()}-{secrets.token_hex(8)}")
        self._device = device
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind("\0" + self.address.socket)
        self._server.listen(1)
        self._server.settimeout(TRANSFER_TIMEOUT.total_seconds())
        self._connection: socket.socket | None = None
        self._file: int | None = None
        self._pending: list[Tensor] = []

    def allocate(self, size: int) -> Tensor:
        """As in WeightSender."""
        if self._device.type == "cuda":
            return torch.empty(size, dtype=torch.uint8, device=self._device)
        self._file = os.memfd_create("rlt-weights")
        os.ftruncate(self._file, size)
        return torch.frombuffer(mmap.mmap(self._file, size), dtype=torch.uint8)

    def put(self, bucket: Bucket | None) -> None:
        """As in WeightSender. Returns when the receiver has loaded the bucket before."""
        if self._connection is None:
            self._connection, _ = self._server.accept()
            self._connection.settimeout(TRANSFER_TIMEOUT.total_seconds())
        elif self._connection.recv(1) != ACKNOWLEDGED:
            raise ConnectionError("the engine's process ended during a weight sync")
        self._pending.clear()
        if bucket is None:
            _send(self._connection, None, [])
            self._connection.close()
            self._connection = None
            return
        self._pending.append(bucket.data)  # a CUDA IPC handle is valid as long as its sender holds the memory
        _send(self._connection, (bucket.layouts, self._export(bucket.data)), [] if self._file is None else [self._file])
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def close(self) -> None:
        """As in WeightSender."""
        self._server.close()
        if self._connection is not None:
            self._connection.close()

    def _export(self, data: Tensor) -> Any:
        """Return the size of shared memory on a CPU, or the arguments of rebuild_cuda_tensor."""
        if self._device.type != "cuda":
            return len(data)
        from torch.multiprocessing.reductions import reduce_tensor

        torch.cuda.synchronize(self._device)  # another process reads what this one's stream writes
        return reduce_tensor(data)[1]  # type: ignore[no-untyped-call]


class SharedReceiver:
    """The receiving end in a process of the engine."""

    def __init__(self, address: SharedAddress, device: torch.device) -> None:
        self._address = address
        self._device = device
        self._connection: socket.socket | None = None

    def get(self) -> Bucket | None:
        """As in WeightReceiver. The call after a bucket confirms that it is loaded."""
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.settimeout(TRANSFER_TIMEOUT.total_seconds())
            self._connection.connect("\0" + self._address.socket)
        else:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self._connection.sendall(ACKNOWLEDGED)
        message, files = _receive(self._connection)
        if message is None:
            self.close()
            return None
        layouts, exported = message
        return Bucket(layouts, self._import(exported, files))

    def close(self) -> None:
        """As in WeightReceiver."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _import(self, exported: Any, files: list[int]) -> Tensor:
        if self._device.type != "cuda":
            data = torch.frombuffer(mmap.mmap(files[0], exported), dtype=torch.uint8)
            os.close(files[0])
            return data
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        arguments = list(exported)
        arguments[6] = self._device.index or 0  # the same device has another number in the sender's process
        data = rebuild_cuda_tensor(*arguments)  # type: ignore[no-untyped-call]
        assert isinstance(data, Tensor)
        return data


def _send(connection: socket.socket, message: tuple[tuple[Layout, ...], Any] | None, files: list[int]) -> None:
    text = pickle.dumps(message)
    socket.send_fds(connection, [len(text).to_bytes(LENGTH_BYTES, "big")], files)
    connection.sendall(text)


def _receive(connection: socket.socket) -> tuple[Any, list[int]]:
    length, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 1)
    text = bytearray()
    while len(text) < int.from_bytes(length, "big"):
        part = connection.recv(int.from_bytes(length, "big") - len(text))
        if not part:
            break
        text += part
    if not text:
        raise ConnectionError("the train worker ended during a weight sync")
    return pickle.loads(bytes(text)), files
