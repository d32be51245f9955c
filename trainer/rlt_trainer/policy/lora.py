"""Low-rank adapters (arXiv 2106.09685) by peft: put in, merged for the engine, saved apart."""

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
"""What peft puts before the names of a model's weights in its files."""


def add_adapters(model: PreTrainedModel, lora: Lora) -> None:
    """Put adapters into the model's linear layers, in place. They alone have a gradient then.

    Raises ValueError where no module has one of the names.
    """
    targets = "all-linear" if lora.target_modules == ["all-linear"] else lora.target_modules
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets)
    try:
        inject_adapter_in_model(config, model, ADAPTER)
    except ValueError as error:
        raise ValueError(f"model.lora.targetModules {lora.target_modules}: {error}") from error
    if isinstance(model.get_output_embeddings(), LoraLayer):  # type: ignore[no-untyped-call]
        raise ValueError("model.lora.targetModules: the output layer cannot have an adapter. Leave it out.")


def is_adapter(name: str) -> bool:
    """Whether a parameter's name is an adapter's."""
    return ".lora_" in name


def base_name(name: str) -> str:
    """A weight's name in the model without adapters."""
    return name.replace(BASE, "")


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """The model as it was before it had adapters. Their gradients' flags stay as they are, which peft would change."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged(module: LoraLayer) -> Tensor:
    """The weight of a gathered layer with what its adapter adds to it, in the weight's type."""
    parts = (module.get_base_layer(), module.lora_A[ADAPTER], module.lora_B[ADAPTER])
    base, down, up = (cast("Tensor", part.weight) for part in parts)
    change: Tensor = module.scaling[ADAPTER] * (up.float() @ down.float())
    return (base.float() + change).to(base.dtype)


def save_adapter(model: PreTrainedModel, directory: Path) -> None:
    """Write the adapter as peft's PeftModel.from_pretrained reads it. Collective; rank 0 writes."""
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
