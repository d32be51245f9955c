"""Offload of weights and optimizer state to CPU memory while they are not used. No effect on CPU devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Offload:
    """What is offloaded to CPU memory, and the device that computes with it."""

    device: torch.device
    weights: bool = False
    optimizer: bool = False

    def offload(self, model: nn.Module) -> None:
        """Move this rank's shards of the weights to the CPU, if weights are offloaded."""
        if self.weights:
            model.to(CPU)

    @contextmanager
    def on_device(self, model: nn.Module) -> Iterator[None]:
        """Hold this rank's shards of the weights on the device within the context."""
        if self.weights:
            model.to(self.device)
        try:
            yield
        finally:
            self.offload(model)

    @contextmanager
    def state_on_device(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Hold the optimizer state on the device within the context."""
        if self.optimizer:
            _move(optimizer, self.device)
        try:
            yield
        finally:
            if self.optimizer:
                _move(optimizer, CPU)


def _move(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = value.to(device)
