"""The files of a causal language model, loading it in one process, and gathering a sharded model's weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers import PreTrainedModel

from rlt_api.blocks.model import Model
from rlt_trainer.data.seeded_model import write_seeded_model
from rlt_trainer.policy.config import build_model_error, load_config_from
from rlt_trainer.policy.expert_parallel import is_split
from rlt_trainer.policy.families import find_auto_class
from rlt_trainer.policy.lora import base_name, is_adapter, merge_adapter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.py"]
"""The files of a model on the hub that are downloaded."""


def prepare_model_files(model: Model, scratch: Path) -> str:
    """Return the folder with the model's files. A model from a seed is written to the folder `scratch`; a model on the
    hub is downloaded at model.revision, so that trainer and engine use the same revision.

    Raises ValueError naming model.path if the model does not exist.
    """
    if model.from_seed is not None:
        write_seeded_model(model.from_seed, scratch)
        return str(scratch)
    assert model.path
    if Path(model.path).is_dir():
        return model.path
    try:
        return snapshot_download(model.path, revision=model.revision, allow_patterns=FILES)
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise build_model_error(model.path, error) from error


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
