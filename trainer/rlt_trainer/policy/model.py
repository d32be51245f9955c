"""Loading a causal language model in one process, and gathering a sharded model's weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers import PreTrainedModel

from rlt_trainer.policy.config import build_model_error, load_config_from
from rlt_trainer.policy.expert_parallel import is_split
from rlt_trainer.policy.families import find_auto_class
from rlt_trainer.policy.lora import base_name, is_adapter, merge_adapter


def load_model(files: str, dtype: torch.dtype, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Load the full model on the CPU, in evaluation mode: dropout would change the ratio of new to old policy.

    Raises ValueError naming `files` if they cannot be loaded.
    """
    try:
        auto = find_auto_class(load_config_from(files, trust_remote_code=trust_remote_code))
        model: PreTrainedModel = auto.from_pretrained(files, dtype=dtype, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise build_model_error(files, error) from error
    model.eval()  # type: ignore[no-untyped-call]
    return model


def cast_output_layer(model: PreTrainedModel) -> None:
    """Compute the model's logits in float32, in place: model.castLmHeadToFp32."""
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]

    def forward(hidden: Tensor) -> Tensor:
        bias = getattr(output, "bias", None)
        return functional.linear(hidden.float(), output.weight.float(), None if bias is None else bias.float())

    output.forward = forward


def gather_weights(model: nn.Module, *, merged: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Yield names and full weights of a sharded model, one layer at a time. Collective: all ranks must consume it.

    Adapters are merged into their base weights, under the names of the base weights. Not `merged`: they are left out.
    The tensors are copies: the engine may hold them for longer than the layer stays gathered.
    """
    for prefix, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        module.unshard()
        assert isinstance(module, nn.Module)
        adapted = {
            f"{name}.base_layer.weight": layer
            for name, layer in module.named_modules(prefix=prefix)
            if isinstance(layer, LoraLayer)
        }
        for name, parameter in module.named_parameters(prefix=prefix):
            if is_split(parameter):
                assert isinstance(parameter, DTensor)
                yield name, parameter.full_tensor().detach()
                continue
            if isinstance(parameter, DTensor) or is_adapter(name):  # weight of a nested layer, yielded later
                continue
            weight = merge_adapter(adapted[name]) if merged and name in adapted else parameter.clone()
            yield base_name(name), weight.detach()
        module.reshard()


def iterate_buffers(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the persistent buffers, which are the same on all ranks."""
    saved = model.state_dict().keys()
    return ((base_name(name), buffer) for name, buffer in model.named_buffers() if name in saved)
