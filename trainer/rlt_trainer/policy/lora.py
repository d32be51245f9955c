"""Low-rank adapters with peft: add, merge for the engine, save separately.

LoRA is arXiv 2106.09685, rsLoRA arXiv 2312.03732, DoRA arXiv 2402.09353.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rlt_api.blocks.model import Lora
from rlt_trainer.policy.mesh import wait_for_ranks

ADAPTER = "default"
ALL_LINEAR = "all-linear"
BASE = ".base_layer"
PEFT_PREFIX = "base_model.model."
"""The prefix of weight names in peft's files."""


def add_adapters(model: PreTrainedModel, lora: Lora) -> None:
    """Add adapters to the model's linear layers, in place. All other parameters are frozen.

    Raises ValueError naming model.lora.targetModules if a target matches no linear layer, or the output layer.
    """
    targets: str | list[str] = list(lora.target_modules)
    if targets == [ALL_LINEAR]:
        targets = ALL_LINEAR
    else:
        check_targets(model, lora.target_modules)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        use_rslora=lora.use_rslora,
        use_dora=lora.use_dora,
    )
    inject_adapter_in_model(config, model, ADAPTER)


def check_targets(model: PreTrainedModel, targets: Sequence[str]) -> None:
    """Raise ValueError naming model.lora.targetModules if a target matches no linear layer, or the output layer."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    for number, target in enumerate(targets):
        field = f"model.lora.targetModules[{number}]: {target}"
        matched = [name for name in names if f".{name}".endswith(f".{target}")]
        if not matched:
            leaves = sorted({name.rpartition(".")[2] for name in names if model.get_submodule(name) is not output})
            near = get_close_matches(target.rpartition(".")[2], leaves, n=3) or leaves
            raise ValueError(
                f"{field}: no linear layer of the model has this name. Use {ALL_LINEAR} alone, or names "
                f"such as {', '.join(near)}."
            )
        if any(model.get_submodule(name) is output for name in matched):
            raise ValueError(f"{field}: an adapter on the output layer is not supported. Remove it.")


@torch.no_grad()
def initialize_magnitudes(model: nn.Module) -> None:
    """Set DoRA's magnitudes to the norms of the loaded weights, so that an initial adapter has no effect.

    Weights and magnitudes are sharded alike, by output, so that no rank needs weights of another one.
    """
    for layer in model.modules():
        if isinstance(layer, LoraLayer) and ADAPTER in layer.lora_magnitude_vector:
            weight = layer.get_base_layer().weight
            magnitude = layer.lora_magnitude_vector[ADAPTER].weight
            norms = torch.linalg.norm(_local(cast("Tensor", weight)).float(), dim=1)
            _local(cast("Tensor", magnitude)).copy_(norms)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _gather(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


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
    """Return the weight of a gathered layer with its adapter merged, in the weight's dtype.

    DoRA's magnitudes replace the norms of the merged rows.
    """
    parts = (module.get_base_layer(), module.lora_A[ADAPTER], module.lora_B[ADAPTER])
    base, down, up = (cast("Tensor", part.weight) for part in parts)
    merged: Tensor = base.float() + module.scaling[ADAPTER] * (up.float() @ down.float())
    if ADAPTER in module.lora_magnitude_vector:
        magnitude = cast("Tensor", module.lora_magnitude_vector[ADAPTER].weight).float()
        merged = (magnitude / torch.linalg.norm(merged, dim=1))[:, None] * merged
    return merged.to(base.dtype)


def gather_adapters(model: nn.Module, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield the full adapters under peft's names, in `dtype`, with the scale in lora_B. Collective."""
    for prefix, layer in model.named_modules():
        if isinstance(layer, LoraLayer):
            for part, scale in (("lora_A", 1.0), ("lora_B", layer.scaling[ADAPTER])):
                weight = _gather(cast("Tensor", getattr(layer, part)[ADAPTER].weight))
                yield f"{PEFT_PREFIX}{prefix}.{part}.weight", (scale * weight.detach()).to(dtype)


def save_adapter(model: PreTrainedModel, directory: Path) -> None:
    """Write the adapter in the format of peft's PeftModel.from_pretrained. Collective; rank 0 writes."""
    weights = {}
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            weights[PEFT_PREFIX + name.replace(f".{ADAPTER}", "")] = _gather(parameter).detach().cpu().contiguous()
    if dist.get_rank() == 0:
        directory.mkdir(parents=True, exist_ok=True)
        save_file(weights, directory / "adapter_model.safetensors", metadata={"format": "pt"})
        cast("LoraConfig", model.peft_config[ADAPTER]).save_pretrained(str(directory))
    wait_for_ranks()
