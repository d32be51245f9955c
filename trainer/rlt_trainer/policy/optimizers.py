"""The optimizers of a sharded model (training.optimizer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz

from rlt_api.blocks.training import Training
from rlt_trainer.policy.eight_bit import build_adamw_8bit
from rlt_trainer.policy.sharded_weights import local_region

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def build_optimizers(model: nn.Module, training: Training, learning_rate: float) -> tuple[Optimizer, ...]:
    """Build the optimizers for the trained parameters of a sharded model.

    adamw: AdamW for all. adamw_8bit: AdamW for all, whose moments are quantized. muon: Muon for the matrices of the
    layers, and AdamW for the others.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    first, second = training.betas
    decay = training.weight_decay
    if training.optimizer == "adamw_8bit":
        return (build_adamw_8bit(trained, learning_rate, (first, second), decay),)
    matrices: list[nn.Parameter] = []
    if training.optimizer == "muon":
        layers = [module for module in model.modules() if isinstance(module, FSDPModule) and module is not model]
        in_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
        matrices = [parameter for parameter in trained if parameter.ndim == 2 and id(parameter) in in_layers]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in trained if id(parameter) not in chosen]
    optimizers: list[Optimizer] = []
    if matrices:
        # With this adjustment, AdamW's learning rate and weight decay apply (arXiv 2502.16982).
        optimizers.append(Muon(matrices, lr=learning_rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    if others:
        optimizers.append(
            torch.optim.AdamW(others, lr=learning_rate, betas=(first, second), weight_decay=decay, fused=True)
        )
    return tuple(optimizers)


class Muon(torch.optim.Muon):
    """torch's Muon for sharded matrices. The momentum stays sharded, and the update is gathered.

    torch's own step multiplies shards: if a matrix has more rows than columns, it adds bfloat16 products of the ranks,
    and the update of two ranks differs from one rank's by 3 %. Here it is equal for any number of ranks. Each rank
    orthogonalizes every matrix.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: DTensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        rate = group["lr"]
        decay = group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - decay)
        update = gradient.lerp(momentum, decay) if group["nesterov"] else momentum
        whole = _zeropower_via_newtonschulz(
            cast("DTensor", update).full_tensor(), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        adjusted = _adjust_lr(rate, group["adjust_lr_fn"], parameter.shape)
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.to_local().add_(whole[local_region(parameter)], alpha=-adjusted)
