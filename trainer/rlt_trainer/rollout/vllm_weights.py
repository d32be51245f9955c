"""The weights that vLLM computes with, read from its own layers, where CPUs have them in the kernels' own format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 256
"""Rows of the identity that go through a layer at a time."""


def held_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight once, in the parts and the order that they are held in.

    On CPUs a linear layer's weights lie in a kernel (`cpu_linear`) that nobody can look into. What it makes of the
    identity is its weights: a sum of one of them and of zeros is not rounded. That costs a pass of so many tokens as
    the layer has inputs.
    """
    kernels = {id(module.weight): module for module in _with_kernel(model)}
    for name, weight in model.named_parameters():  # those that layers share once
        if id(weight) in kernels:
            for part in _unpacked(kernels[id(weight)]):
                yield name, part
        else:
            yield name, weight


def pack_shared_weights(model: nn.Module) -> None:
    """Give the CPU's kernels the weights that their layers have, in place.

    After vLLM's reload_weights the kernel of an output layer that shares the embedding's weights has the old ones.
    """
    for module in _with_kernel(model):
        if module.weight.numel() > 0:  # where only the kernel has them, they were loaded into it
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _with_kernel(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "cpu_linear")]


def _unpacked(module: Any) -> Iterator[Tensor]:
    names = ("input_size_per_partition", "embedding_dim", "input_size")
    inputs: int = next(getattr(module, name) for name in names if hasattr(module, name))
    for start in range(0, inputs, ROWS):
        rows = torch.zeros(min(ROWS, inputs - start), inputs, dtype=module.weight.dtype)
        rows[:, start : start + ROWS].fill_diagonal_(1)
        yield module.cpu_linear(rows, module.weight, None)
