"""Loading a causal language model and sharding it over the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlt_api.blocks.model import Model
from rlt_trainer.data.seeded_model import write_seeded_model
from rlt_trainer.policy.config import unusable

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def model_files(model: Model, scratch: Path) -> str:
    """Path or hub name of the model's files. A model from a seed is written to the folder `scratch` first."""
    if model.from_seed is None:
        assert model.path
        return model.path
    write_seeded_model(model.from_seed, scratch)
    return str(scratch)


def load_model(files: str, dtype: torch.dtype) -> PreTrainedModel:
    """The whole model on the CPU, in evaluation mode: dropout would make the ratio of new to old policy wrong.

    Raises ValueError naming `files` if they cannot be loaded.
    """
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(files, dtype=dtype)
    except (OSError, ValueError) as error:
        raise unusable(files, error) from error
    model.eval()  # type: ignore[no-untyped-call]
    return model


def shard(model: PreTrainedModel, mesh: DeviceMesh, dtype: torch.dtype) -> PreTrainedModel:
    """FSDP2 around every layer and around the rest, in place; the weights move to the mesh's devices.

    The shards keep the type in which the model was loaded, float32, and so do gradients and optimizer; computation and
    gathered weights are in `dtype`. bfloat16 alone would round small updates away.
    """
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = [module for module in model.modules() if type(module).__name__ in (model._no_split_modules or ())]
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=precision)
    return model


def full_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and whole weights of a sharded model, one layer at a time. All ranks must consume it alike.

    The tensors are copies: the engine may hold them for longer than the layer stays gathered.
    """
    for prefix, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        module.unshard()
        assert isinstance(module, nn.Module)
        for name, parameter in module.named_parameters(prefix=prefix):
            if not isinstance(parameter, DTensor):  # what is still sharded belongs to a layer with its own turn
                yield name, parameter.detach().clone()
        module.reshard()
