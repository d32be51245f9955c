"""Offload of weights and optimizer state to CPU memory while they are not used. No effect on CPU devices.

On CUDA the CPU memory is pinned, so that copies run at the speed of the bus. torch's allocator may round a pinned
buffer up to a power of two, and keeps it for the next offload (ATen/core/CachingHostAllocator.h).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Offload:
    """What is offloaded to CPU memory, and the device that computes with it."""

    device: torch.device
    weights: bool = False
    optimizer: bool = False

    def offload(self, model: nn.Module, *optimizers: Optimizer) -> None:
        """Move this rank's shards of the weights, and the optimizer state, to the CPU, if they are offloaded."""
        if self.weights:
            model._apply(partial(_move, device=CPU))  # type: ignore[no-untyped-call]
        for optimizer in optimizers if self.optimizer else ():
            _move_state(optimizer, CPU)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # a reader on the CPU does not wait for the copies

    @contextmanager
    def on_device(self, model: nn.Module, *optimizers: Optimizer) -> Iterator[None]:
        """Hold this rank's shards of the weights, and the optimizer state, on the device within the context."""
        if self.weights:
            model._apply(partial(_move, device=self.device))  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            # Even if only weights are offloaded: a checkpoint that is loaded meanwhile leaves its moments on the CPU.
            _move_state(optimizer, self.device)
        try:
            yield
        finally:
            self.offload(model, *optimizers)


def _move(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu" and tensor.is_cuda:
        return torch.empty_like(tensor, device=device, pin_memory=True).copy_(tensor, non_blocking=True)
    return tensor.to(device, non_blocking=True)


def _move_state(optimizer: Optimizer, device: torch.device) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = _move(value, device)
