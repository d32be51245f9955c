"""Sharding of a model with FSDP2, layer by layer, with checkpointing and compilation. Imports torch only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint


def shard(
    model: nn.Module,
    layers: list[nn.Module],
    experts: list[nn.Module],
    forward: Callable[..., Any],
    *,
    mesh: DeviceMesh,
    expert_mesh: DeviceMesh | None = None,
    dtype: torch.dtype,
    gradient_checkpointing: bool = False,
    compiled: Collection[nn.Module] = (),
    reshard_after_forward: bool = True,
) -> None:
    """Apply FSDP2 to each of `layers` and to the rest of the model, in place.

    experts: modules within the layers that are split over the second dimension of expert_mesh. FSDP2 shards each part
    over the first one.
    compiled: the layers that torch.compile compiles.
    forward(model, ...) replaces the model's forward: FSDP2 gathers the root weights only around that call.
    Shards, gradients and optimizer state keep the dtype of the parameters, float32; computation and gathered weights
    are in `dtype`. With bfloat16 only, rounding would lose small updates.
    """
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in experts:
        assert expert_mesh is not None
        fully_shard(module, mesh=expert_mesh["shard"], mp_policy=precision, reshard_after_forward=reshard_after_forward)
    for layer in layers:
        # Inside fully_shard, so that the weights are gathered when a layer is recomputed.
        if layer in compiled:
            layer.forward = torch.compile(layer.forward, dynamic=True)
        if gradient_checkpointing:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard_after_forward)
    model.forward = partial(forward, model)
    fully_shard(model, mesh=mesh, mp_policy=precision)


def find_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformers model: the outermost modules in its _no_split_modules."""
    names = getattr(model, "_no_split_modules", None) or ()
    layers: dict[str, nn.Module] = {}
    for name, module in model.named_modules():  # parents before their children
        if type(module).__name__ in names and not any(name.startswith(f"{outer}.") for outer in layers):
            layers[name] = module
    return list(layers.values())


def local_shards(model: nn.Module) -> Iterator[Tensor]:
    """Yield this rank's shard of each parameter in a sharded model."""
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor)
        yield parameter.to_local()
