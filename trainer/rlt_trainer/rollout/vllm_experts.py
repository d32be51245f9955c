"""Stacks of experts in vLLM: a stack is loaded by one call of the loader, and not by a call for each expert."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import Tensor

from rlt_trainer.rollout.vllm_layouts import like


def accept_stacks() -> None:
    """Let vLLM's loader of experts load a stack of any experts, before a model is created.

    The loader takes the name of a single expert. It also takes a matrix for each expert of the layer, in one tensor
    (vllm/model_executor/layers/fused_moe/routed_experts.py, vLLM 0.32: full_load), and a bucket has some of them. Every
    device must have all experts of a layer: no expert parallelism.
    """
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    experts: Any = RoutedExperts
    load = experts.weight_loader

    @wraps(load)
    def load_stack(
        layer: Any,
        param: Tensor,
        loaded_weight: Tensor,
        weight_name: str,
        shard_id: str,
        expert_id: int,
        return_success: bool = False,
    ) -> bool | None:
        if loaded_weight.ndim == 3:
            param = like(param, param.data[expert_id : expert_id + len(loaded_weight)])
        is_loaded: bool | None = load(layer, param, loaded_weight, weight_name, shard_id, expert_id, return_success)
        return is_loaded

    experts.weight_loader = load_stack
