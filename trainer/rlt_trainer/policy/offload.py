"""Weights and optimizer state in the CPU's memory while they are not needed. Where the CPU computes, they stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Offload:
    """What waits in the CPU's memory, and where it is computed with."""

    device: torch.device
    weights: bool = False
    optimizer: bool = False

    def park(self, model: nn.Module) -> None:
        """Take this rank's part of the weights away from the device."""
        if self.weights:
            model.to(CPU)

    @contextmanager
    def on_device(self, model: nn.Module) -> Iterator[None]:
        """This rank's part of the weights is where it is computed with."""
        if self.weights:
            model.to(self.device)
        try:
            yield
        finally:
            self.park(model)

    @contextmanager
    def state_on_device(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """The same for the optimizer's state."""
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
