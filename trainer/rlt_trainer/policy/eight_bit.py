"""AdamW with quantized moments (training.optimizer: adamw_8bit). The package torchao is optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

BLOCK = 128
"""Number of moments that share a scale. It divides the widths of more models than torchao's 256, such as 896."""
MOMENTS = {"exp_avg": "exp_avg_8bit", "exp_avg_sq": "exp_avg_sq_8bit"}
"""The moments of torchao -> their names in checkpoints, which differ from AdamW's."""


def build_adamw_8bit(
    parameters: Sequence[nn.Parameter], rate: float, betas: tuple[float, float], weight_decay: float
) -> Optimizer:
    """Build torchao's AdamW with moments of 8 bits and one float32 scale for each BLOCK of them (arXiv 2110.02861).

    Which moments are quantized depends on the whole parameter, and not on the size of a shard as in torchao: matrices
    whose rows consist of whole blocks. Shards have whole rows, so that updates and checkpoints do not depend on the
    number of ranks. The moments of the other parameters are float32.
    """
    optimizer: Optimizer = _define_class()(parameters, rate, betas, weight_decay)
    return optimizer


@cache
def _define_class() -> Any:
    """Define the optimizer, whose base class is torchao's, and its copy in an asynchronous save."""
    import torchao.optim
    from torchao.optim.subclass_8bit import OptimState8bit

    class AdamW8bit(torchao.optim.AdamW8bit):  # type: ignore[misc]
        def __init__(
            self, parameters: Sequence[nn.Parameter], rate: float, betas: tuple[float, float], weight_decay: float
        ) -> None:
            super().__init__(parameters, lr=rate, betas=betas, weight_decay=weight_decay, block_size=BLOCK)
            self._on_cpu = parameters[0].device.type == "cpu"
            self.register_state_dict_post_hook(lambda _, state: _rename(state, MOMENTS))
            self.register_load_state_dict_pre_hook(
                lambda _, state: _rename(state, {saved: name for name, saved in MOMENTS.items()})
            )

        def _new_buffer(self, p: DTensor, signed: bool) -> Tensor:
            local = p.to_local()
            quantized = p.ndim > 1 and p.shape[-1] % BLOCK == 0 and local.numel() > 0  # a rank may have no rows
            zeros = self._subclass_zeros(local, signed, BLOCK) if quantized else torch.zeros_like(local)
            options: dict[str, Any] = {"run_check": False, "shape": p.shape, "stride": p.stride()}
            return DTensor.from_local(zeros, p.device_mesh, p.placements, **options).to(p.device)

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            """Update the parameters that have a gradient. torchao compiles the update, here only on GPUs."""
            for group in self.param_groups:
                group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32)  # torchao rejects a float
            with torch.compiler.set_stance("force_eager") if self._on_cpu else nullcontext():
                super().step()

    @OptimState8bit.implements(torch.ops.aten.new_empty.default)  # type: ignore[untyped-decorator]
    def _build_empty(_: Any, types: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> OptimState8bit:
        """Build the copy of an asynchronous save, whose parts torch then fills (_state_dict_stager.py, torch 2.13)."""
        source, size = arguments[:2]
        codes = source.codes.new_empty(size, device=options.get("device"))
        scale = source.scale.new_empty(codes.numel() // source.block_size, device=options.get("device"))
        return OptimState8bit(codes, scale, source.qmap.clone(), source.signed, dtype=source.dtype)

    return AdamW8bit


def _rename(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    moments = {
        number: {names.get(name, name): value for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": moments}
