"""The weights that vLLM computes with, read from its layers. On CPUs they are packed for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 256
"""Rows of the identity matrix per forward call of a layer."""


def iterate_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight once, in vLLM's parts and order.

    On CPUs the weights of a linear layer are packed inside a kernel (`cpu_linear`) and cannot be read. Applied to the
    identity matrix, the kernel returns them exactly: the sum of one weight and zeros is not rounded. The cost is a
    forward pass with as many tokens as the layer has inputs.
    The adapters that vLLM applies itself come last (model.lora.syncAdapters).
    """
    kernels = {id(module.weight): module for module in _find_packed(model)}
    for name, weight in model.named_parameters():  # shared weights once
        if id(weight) in kernels:
            for part in _unpack(kernels[id(weight)]):
                yield name, part
        else:
            yield name, weight
    for name, module in model.named_modules():
        for factor in ("lora_a_stacked", "lora_b_stacked"):
            for part in module.__dict__.get(factor, ()):  # padded with zeros to max_lora_rank
                yield f"{name}.{factor}", part


def pack_shared_weights(model: nn.Module) -> None:
    """Repack the weights of the layers for the CPU's kernels, in place.

    After vLLM's reload_weights, the kernel of an output layer with tied embeddings still has the old weights.
    """
    for module in _find_packed(model):
        if module.weight.numel() > 0:  # else only the kernel has them, already updated
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def pack_experts(model: nn.Module) -> None:
    """Repack the experts of the layers for the CPU's kernels.

    vLLM's reload_weights leaves them as in the files, because it sets up their kernel only at the first load
    (UnquantizedFusedMoEMethod._setup_kernel).
    """
    for module in model.modules():
        weight = getattr(module, "w13_weight", None)
        if isinstance(weight, Tensor) and weight.device.type == "cpu":
            method: Any = module.quant_method
            method.moe_kernel.fused_experts.process_weights_after_loading(module)


def _find_packed(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "cpu_linear")]


def _unpack(module: Any) -> Iterator[Tensor]:
    names = ("input_size_per_partition", "embedding_dim", "input_size")
    inputs: int = next(getattr(module, name) for name in names if hasattr(module, name))
    for start in range(0, inputs, ROWS):
        rows = torch.zeros(min(ROWS, inputs - start), inputs, dtype=module.weight.dtype)
        rows[:, start : start + ROWS].fill_diagonal_(1)
        yield module.cpu_linear(rows, module.weight, None)
