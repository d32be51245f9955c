"""Balance a mixture of experts without an auxiliary loss: routers add a bias to the scores to select experts.

The weights of the selected experts do not contain the bias, so that it has no gradient (DeepSeek-V3, arXiv 2412.19437,
section 2.1.2; arXiv 2408.15664).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlt_trainer.policy.expert_load import EXPERTS

BIAS = "e_score_correction_bias"
"""The name of the bias in transformers' routers [E]: a buffer, in float32 with any model.dtype."""


class RouterBias:
    """Moves the biases of a model's routers toward an equal number of tokens for each expert."""

    def __init__(self, model: PreTrainedModel, rate: float) -> None:
        """rate: the change of a bias in an update."""
        self._routers = find_routers(model)
        self._rate = rate

    @torch.no_grad()
    def update(self, counts: Mapping[str, Tensor]) -> None:
        """Change the bias of each layer by its number of tokens for each expert, over all ranks (ExpertLoad.reduce)."""
        for name, count in counts.items():
            bias = self._routers[name].get_buffer(BIAS)  # an offload replaces it
            bias.add_(compute_change(count, self._rate).to(bias))


def compute_change(count: Tensor, rate: float) -> Tensor:
    """Return rate * sign(mean(count) - count), for the number of tokens of each expert [E].

    Megatron-Core has the same formula (moe_router_bias_update_rate). torchtitan subtracts the mean of the change, which
    changes no selection.
    """
    count = count.double()
    return rate * (count.mean() - count).sign()


def find_routers(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the modules with a BIAS by the names of the stacked experts that they select from. Each must have one."""
    routers: dict[str, nn.Module] = {}
    for name, _ in model.named_modules():
        block, _, last = name.rpartition(".")
        if last == EXPERTS:
            (routers[name],) = (each for each in model.get_submodule(block).modules() if BIAS in each._buffers)
    return routers
