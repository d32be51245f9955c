"""Router replay: a forward pass whose tokens go to recorded experts (R2 and R3 of algorithm.routerReplay).

The weights of these experts are the current router's, so that it has a gradient (arXiv 2510.11370, rollout routing
replay). Only the choice is replaced, where the router takes its highest scores with torch.topk. All that follows, such
as the normalization of the weights, is the family's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from rlt_trainer.batches.routes import encode_routes
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.context_parallel import gather_tokens
from rlt_trainer.policy.expert_load import EXPERTS
from rlt_trainer.policy.model_inputs import find_token_places

T = TypeVar("T")


class RouterReplay:
    """Records and replaces the choices of a model's routers."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._layers = int(model.config.get_text_config().num_hidden_layers)
        self._routes: Tensor | None = None
        self._chosen: dict[int, Tensor] = {}
        self._thread: int | None = None
        for name, module in list(model.named_modules()):
            block, _, last = name.rpartition(".")
            if last == EXPERTS and hasattr(module, "num_experts"):
                layer = _find_layer_number(name)
                experts = int(module.num_experts)
                module.register_forward_pre_hook(partial(self._record, layer, experts))
                parent = model.get_submodule(block)
                parent.forward = partial(self._forward, layer, experts, parent.forward)

    def force(self, routes: Tensor | None) -> None:
        """Use `routes` [N, L, k] in forward passes of N tokens, also where the backward pass computes a layer again,
        until the next call. None: the routers choose."""
        self._routes = routes

    def record(self, forward: Callable[[], T]) -> tuple[T, Tensor]:
        """Run one forward pass of the model. Return its result and the routes of its N tokens: [N, L, k].

        Passes in other threads at the same time are not recorded.
        """
        self._thread = threading.get_ident()
        try:
            result = forward()
        finally:
            self._thread = None
        some = next(iter(self._chosen.values()))
        none = torch.zeros_like(some)
        routes = torch.stack([self._chosen.get(layer, none) for layer in range(self._layers)], dim=1)
        self._chosen.clear()
        return result, routes

    def _record(self, layer: int, experts: int, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._thread == threading.get_ident():
            self._chosen[layer] = encode_routes(arguments[1], experts)

    def _forward(self, layer: int, experts: int, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._routes is None:
            return forward(*arguments, **options)
        with _ForcedChoice(self._routes[:, layer], experts) as choice:
            result = forward(*arguments, **options)
        assert choice.count == 1, "the routers of EXPERT_PARALLEL families choose experts once (families.py)"
        return result


class _ForcedChoice(TorchFunctionMode):
    """Replaces the experts with the highest scores, in torch.topk over all experts' scores [N, E]."""

    def __init__(self, routes: Tensor, experts: int) -> None:
        """routes: [N, k], 0 where the highest scores count."""
        super().__init__()
        self._routes = routes
        self._shape = (len(routes), experts)
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk) or args[0].shape != self._shape:
            return result
        self.count += 1
        numbers = self._routes.to(result.indices.dtype) - 1
        numbers = torch.where(numbers < 0, result.indices, numbers)
        return torch.return_types.topk((args[0].gather(-1, numbers), numbers))


def lay_out_routes(sequences: Sequences, *, packed: bool, group: dist.ProcessGroup | None) -> Tensor | None:
    """Return the routes of this rank's N tokens in a forward pass over `sequences` (forward.py): [N, L, k]."""
    if sequences.routes is None:
        return None
    routes = sequences.routes.flatten(0, 1)
    if not packed:
        return routes
    routes = routes.index_select(0, find_token_places(sequences))
    if group is None:
        return routes
    size = -(-len(routes) // group.size())
    filled = functional.pad(routes, (0, 0, 0, 0, 0, size * group.size() - len(routes)))
    return filled[group.rank() * size :][:size]


def restore_routes(routes: Tensor, sequences: Sequences, *, packed: bool, group: dist.ProcessGroup | None) -> Tensor:
    """Return the routes [N, L, k] of this rank's tokens by sequence: [B, P + T, L, k]. Collective with a `group`."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    shape = (*mask.shape, *routes.shape[1:])
    if not packed:
        return routes.view(shape) * mask[..., None, None]
    if group is not None:  # as bytes: neither NCCL nor gloo sends int16
        routes = gather_tokens(routes.view(torch.uint8), group).view(routes.dtype)
    places = find_token_places(sequences)
    return routes.new_zeros(mask.numel(), *shape[2:]).index_copy(0, places, routes[: len(places)]).view(shape)


def _find_layer_number(name: str) -> int:
    """Return the number of the decoder layer in the name of a module."""
    (number,) = re.findall(r"\blayers\.(\d+)\.", name)
    return int(number)
