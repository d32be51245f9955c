"""Expert parallelism: the ranks of a group split the experts of a layer, and exchange tokens (arXiv 2006.16668)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional

from rlt_trainer.policy.expert_load import EXPERTS
from rlt_trainer.policy.mesh import EXPERT_DIMENSION

Experts = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps hidden states [N, H], the numbers of each token's experts [N, k] and their weights [N, k] to [N, H]."""


def find_experts(model: nn.Module) -> list[nn.Module]:
    """Return the modules of stacked experts in a transformers model, one for each layer."""
    named = model.named_modules()
    return [module for name, module in named if name.rpartition(".")[2] == EXPERTS and hasattr(module, "num_experts")]


def split_experts(experts: nn.Module, mesh: DeviceMesh) -> None:
    """Split stacked experts on the meta device over `mesh`, which has one dimension, in place.

    The number of experts must be divisible by the size of the mesh. Rank r has the r-th part of them. The forward is
    transformers' forward, on the tokens of this rank's experts.
    """
    per_rank = int(experts.num_experts) // mesh.size()  # type: ignore[arg-type]
    outline = copy(experts)
    outline._parameters = {}
    outline.num_experts = per_rank  # type: ignore[assignment]
    for name, parameter in list(experts.named_parameters(recurse=False)):
        local = torch.empty(per_rank, *parameter.shape[1:], dtype=parameter.dtype, device=parameter.device)
        split = DTensor.from_local(
            local, mesh, [Shard(0)], run_check=False, shape=parameter.shape, stride=parameter.stride()
        )
        experts.register_parameter(name, nn.Parameter(split, requires_grad=parameter.requires_grad))

    def forward(hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        mine = copy(outline)
        for name, parameter in experts.named_parameters(recurse=False):
            assert isinstance(parameter, DTensor)
            vars(mine)[name] = local = parameter.to_local()
            if local.requires_grad:
                # It has the gradient of the tokens on all ranks in `mesh`, and FSDP2 averages over the others alone.
                local.register_hook(lambda gradient: gradient / mesh.size())  # type: ignore[no-untyped-call]
        return exchange_tokens(hidden, chosen, weights, mine.forward, per_rank, mesh.get_group())

    experts.forward = forward


def is_split(parameter: Tensor) -> bool:
    """Whether a gathered parameter is this rank's part of a layer's experts."""
    return isinstance(parameter, DTensor) and parameter.device_mesh.mesh_dim_names == (EXPERT_DIMENSION,)


def exchange_tokens(
    hidden: Tensor, chosen: Tensor, weights: Tensor, experts: Experts, per_rank: int, group: dist.ProcessGroup
) -> Tensor:
    """Apply the experts of all ranks to this rank's hidden states [N, H]. Collective.

    chosen, weights: [N, k]. experts: of this rank, the numbers rank * per_rank to (rank + 1) * per_rank - 1. A token is
    sent once for each of its experts.
    """
    k = chosen.shape[1]
    expert, order = chosen.flatten().sort(stable=True)  # by expert, and so by rank
    to_send = torch.bincount(expert // per_rank, minlength=group.size())
    to_receive = torch.empty_like(to_send)
    dist.all_to_all_single(to_receive, to_send, group=group)
    send = to_send.tolist()
    receive = to_receive.tolist()
    rows = _exchange(hidden[order // k], send, receive, group)
    numbers = _exchange(expert % per_rank, send, receive, group)
    if not len(rows):  # a row of zeros, so that the experts have gradients on every rank
        rows = functional.pad(rows, (0, 0, 0, 1))
        numbers = functional.pad(numbers, (0, 1))
    outputs = experts(rows, numbers[:, None], rows.new_ones(len(rows), 1))[: sum(receive)]
    weighted = _exchange(outputs, receive, send, group) * weights.flatten()[order, None]
    by_token = weighted[order.argsort()].view(len(hidden), k, -1)
    return by_token.sum(1).to(hidden.dtype)


def _exchange(rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
    """Send the first send[0] rows to rank 0, the next to rank 1, and so on. Return the received rows by rank."""
    exchanged: Tensor = _Exchange.apply(rows, send, receive, group)  # type: ignore[no-untyped-call]
    return exchanged


class _Exchange(torch.autograd.Function):
    """An exchange in the forward pass, and its inverse in the backward pass."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.send = send
        ctx.receive = receive
        ctx.group = group
        return _all_to_all(rows, send, receive, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _all_to_all(gradient, ctx.receive, ctx.send, ctx.group), None, None, None


def _all_to_all(rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
    received = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(received, rows.contiguous(), receive, send, group=group)
    return received
