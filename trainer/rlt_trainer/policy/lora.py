"""Low-rank adapters (arXiv 2106.09685) with peft: add, merge for the engine, save separately."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch.distributed as dist
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rlt_api.blocks.model import Lora

ADAPTER = "default"
BASE = ".base_layer"
PEFT_PREFIX = "base_model.model."
"""The prefix of weight names in peft's files."""


def add_adapters(model: PreTrainedModel, lora: Lora) -> None:
    """Add adapters to the model's linear layers, in place. All other parameters are frozen.

    Raises ValueError naming model.lora.targetModules if no module matches, or if the output layer does.
    """
    targets = "all-linear" if lora.target_modules == ["all-linear"] else lora.target_modules
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets)
    try:
        inject_adapter_in_model(config, model, ADAPTER)
    except ValueError as error:
        raise ValueError(f"model.lora.targetModules {lora.target_modules}: {error}") from error
    if isinstance(model.get_output_embeddings(), LoraLayer):  # type: ignore[no-untyped-call]
        raise ValueError("model.lora.targetModules: an adapter on the output layer is not supported. Remove it.")


def is_adapter(name: str) -> bool:
    """Whether `name` is the name of an adapter's parameter."""
    return ".lora_" in name


def base_name(name: str) -> str:
    """Return the name of a weight in the model without adapters."""
    return name.replace(BASE, "")


@contextmanager
def disable_adapters(model: nn.Module) -> Iterator[None]:
    """Disable the adapters within the context. Unlike peft's own, it does not change requires_grad."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merge_adapter(module: LoraLayer) -> Tensor:
    """Return the weight of a gathered layer with its adapter merged, in the weight's dtype."""
    parts = (module.get_base_layer(), module.lora_A[ADAPTER], module.lora_B[ADAPTER])
    base, down, up = (cast("Tensor", part.weight) for part in parts)
    change: Tensor = module.scaling[ADAPTER] * (up.float() @ down.float())
    return (base.float() + change).to(base.dtype)


def save_adapter(model: PreTrainedModel, directory: Path) -> None:
    """Write the adapter in the format of peft's PeftModel.from_pretrained. Collective; rank 0 writes."""
    weights = {}
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            weights[PEFT_PREFIX + name.replace(f".{ADAPTER}", "")] = whole.detach().cpu().contiguous()
    if dist.get_rank() == 0:
        directory.mkdir(parents=True, exist_ok=True)
        save_file(weights, directory / "adapter_model.safetensors", metadata={"format": "pt"})
        cast("LoraConfig", model.peft_config[ADAPTER]).save_pretrained(str(directory))
    dist.barrier()
