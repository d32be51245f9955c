"""Cutting a model up by FSDP2, layer by layer, with what goes around a layer's computation. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    forward: Callable[..., Any],
    *,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    gradient_checkpointing: bool = False,
    compiled: bool = False,
    reshard_after_forward: bool = True,
) -> None:
    """FSDP2 around every one of `layers` and around the rest, in place.

    forward(model, ...) becomes the model's own: FSDP2 gathers the weights of the rest around that and nothing else.
    The shards keep the type that they have, float32, and so do gradients and optimizer; computation and gathered
    weights are in `dtype`. bfloat16 alone would round small updates away.
    """
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in layers:
        # Within FSDP2's gathering, so that a layer computed again finds its weights.
        if compiled:
            layer.forward = torch.compile(layer.forward, dynamic=True)
        if gradient_checkpointing:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard_after_forward)
    model.forward = partial(forward, model)
    fully_shard(model, mesh=mesh, mp_policy=precision)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a model of transformers, which it says must not be split."""
    names = getattr(model, "_no_split_modules", None) or ()
    return [module for module in model.modules() if type(module).__name__ in names]


def local_parts(model: nn.Module) -> Iterator[Tensor]:
    """This rank's part of each parameter of a sharded model."""
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor)
        yield parameter.to_local()
