"""The weights that vLLM computes with, read from its layers. On CPUs they are packed for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 256
"""Rows of the identity matrix per forward call of a layer."""
ORDERED_EXPERTS = ("TRITON", "BATCHED_TRITON")
"""Kernels that leave the weights of experts where vLLM's loader has put them (UnquantizedMoeBackend, vLLM 0.32)."""


@dataclass(frozen=True)
class Held:
    """A weight of a layer."""

    name: str
    parameter: Tensor
    """Under which vLLM has loaded it."""
    values: Tensor
    is_ordered: bool
    """Whether the elements are where vLLM's loader has put them, and not in the order of a kernel."""
    is_replica: bool
    """Another layer has the same parameter: the output layer has a kernel beside the embedding that it is tied to."""


def iterate_weights(model: nn.Module) -> Iterator[Held]:
    """Yield each weight, in vLLM's parts and order, unpacked.

    The adapters that vLLM applies itself come last (model.lora.syncAdapters).
    """
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            is_packed = parameter is getattr(module, "weight", None) and hasattr(module, "cpu_linear")
            is_replica = id(parameter) in seen
            if is_packed or not is_replica:
                seen.add(id(parameter))
                values, is_ordered = _read(module, parameter, is_packed=is_packed)
                yield Held(name, parameter, values, is_ordered, is_replica)
    for name, module in model.named_modules():
        for factor in ("lora_a_stacked", "lora_b_stacked"):
            for part in module.__dict__.get(factor, ()):  # padded with zeros to max_lora_rank
                yield Held(f"{name}.{factor}", part, part, is_ordered=False, is_replica=False)


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


def _read(module: Any, parameter: Tensor, *, is_packed: bool) -> tuple[Tensor, bool]:
    """Return the values of a parameter, and whether they are ordered."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    method: Any = getattr(module, "quant_method", None)
    if is_packed:
        return _unpack(module), True
    is_plain = method is None or isinstance(method, UnquantizedLinearMethod | UnquantizedEmbeddingMethod)
    if is_plain or not isinstance(method, UnquantizedFusedMoEMethod):
        return parameter, is_plain
    if parameter.device.type == "cpu" and parameter.ndim > 2:
        return _unpack_experts(parameter, module.quant_method.moe_kernel.fused_experts), True
    return parameter, method.unquantized_backend.name in ORDERED_EXPERTS


def _unpack(module: Any) -> Tensor:
    """Return the matrix of a linear layer, which a kernel on CPUs holds.

    Applied to the identity matrix, the kernel returns it exactly: the sum of one weight and zeros is not rounded. The
    cost is a forward pass with as many tokens as the layer has inputs.
    """
    names = ("input_size_per_partition", "embedding_dim", "input_size")
    inputs: int = next(getattr(module, name) for name in names if hasattr(module, name))
    columns = []
    for start in range(0, inputs, ROWS):
        rows = torch.zeros(min(ROWS, inputs - start), inputs, dtype=module.weight.dtype)
        rows[:, start : start + ROWS].fill_diagonal_(1)
        columns.append(module.cpu_linear(rows, module.weight, None))
    return torch.cat(columns).T


def _unpack_experts(packed: Tensor, kernel: Any) -> Tensor:
    """Return the matrices of experts, which are rearranged for the kernel on CPUs, all in the same way.

    The kernel rearranges the numbers of the elements, one byte after the other: bfloat16 has no larger numbers.
    """
    from vllm._custom_ops import cpu_prepack_moe_weight

    if kernel._use_zentorch:
        return packed
    numbers = torch.arange(packed[0].numel()).view(1, *packed.shape[1:])
    places = torch.zeros_like(numbers)
    for byte in range(4):
        shift = 8 * byte
        places |= cpu_prepack_moe_weight((numbers >> shift & 255).to(packed.dtype), kernel.isa).long() << shift
    values = torch.empty_like(packed)
    values.view(len(packed), -1)[:, places.flatten()] = packed.detach().reshape(len(packed), -1)
    return values
