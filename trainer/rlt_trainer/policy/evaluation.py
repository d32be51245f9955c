"""Numbers of responses without gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.passes import PassSize, passes


@torch.no_grad()
def evaluate(
    model: nn.Module,
    sequences: Sequences,
    size: PassSize,
    device: torch.device,
    numbers_of: Callable[[Sequences], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """What the sharded `model` says of each response token by `numbers_of`: [B, T] each, on the CPU. Collective."""
    places, parts = [], []
    for rows, part in passes(sequences, size, device):
        places.append(rows)
        parts.append([numbers[: len(rows)].cpu() for numbers in numbers_of(part)])
    assert isinstance(model, FSDPModule)
    model.reshard()  # FSDP2 keeps the root's weights for a backward pass, and would use them from then on
    order = torch.cat(places).argsort()
    return tuple(torch.cat(numbers)[order] for numbers in zip(*parts, strict=True))
