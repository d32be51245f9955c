"""The gradient norm of a sharded model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip_gradients(parameters: Iterable[Tensor], maximum: float) -> float:
    """Scale the gradients down to the norm `maximum`, in place. Return the norm before. Collective.

    torch's clip_grad_norm_ requires that all parameters are on one mesh.
    """
    by_mesh: defaultdict[DeviceMesh, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            assert isinstance(parameter, DTensor)
            by_mesh[parameter.device_mesh].append(parameter)
    norms = [_full(get_total_norm([each.grad for each in part if each.grad is not None])) for part in by_mesh.values()]
    norm = torch.stack(norms).norm()
    for part in by_mesh.values():
        clip_grads_with_norm_(part, maximum, norm)
    return float(norm)


def _full(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
