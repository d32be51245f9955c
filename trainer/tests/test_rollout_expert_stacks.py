"""Stacks of experts are sent, loaded and verified as single experts are."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rlt_trainer.rollout.buckets import pack_buckets
from rlt_trainer.rollout.expert_stacks import iterate_experts
from rlt_trainer.rollout.vllm_experts import accept_stacks
from rlt_trainer.rollout.vllm_layouts import Layouts
from rlt_trainer.rollout.weight_sums import Summation, Sums, add_up_sums, sum_weights
from rlt_trainer.rollout.weight_sync import find_moved_weights

EXPERTS = 5
EXPERT_BYTES = 8 * 6 * 4
READS = {Tensor.tolist, Tensor.item, Tensor.__int__, Tensor.__bool__, Tensor.__float__}
"""What makes the host wait for a device."""
Weights = list[tuple[str, Tensor]]


def build_stacks() -> Weights:
    generator = torch.Generator().manual_seed(0)
    shapes = {"gate_proj": (8, 6), "up_proj": (8, 6), "down_proj": (6, 8)}
    return [
        (f"layers.0.mlp.experts.0.{name}.weight", torch.randn(EXPERTS, *shape, generator=generator))
        for name, shape in shapes.items()
    ]


def cut(limit: int) -> Weights:
    """Return the stacks as they arrive in buckets of at most `limit` bytes."""
    packed = list(pack_buckets(build_stacks(), lambda size: torch.zeros(size, dtype=torch.uint8), limit=limit))
    assert all(len(bucket.data) <= max(limit, EXPERT_BYTES) for bucket in packed)
    return [weight for bucket in packed for weight in bucket.unpack()]


class Experts(nn.Module):
    """The parameters of a layer on the second of two devices, with vLLM's loader."""

    def __init__(self) -> None:
        from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

        super().__init__()
        self.w13 = nn.Parameter(torch.zeros(EXPERTS, 8, 6), requires_grad=False)
        self.w2 = nn.Parameter(torch.zeros(EXPERTS, 6, 4), requires_grad=False)
        layer: Any = object.__new__(RoutedExperts)
        nn.Module.__init__(layer)
        layer.quant_config = layer.quant_method = layer._fused_shared_expert_quantizer = None
        layer.expert_map_manager = SimpleNamespace(map_global_to_local=lambda expert: expert)
        layer.moe_config = SimpleNamespace(
            tp_rank=1,
            tp_shard_with_padding=False,
            is_act_and_mul=True,
            moe_parallel_config=SimpleNamespace(tp_size=2),
        )
        for parameter in (self.w13, self.w2):
            parameter.weight_loader = layer.weight_loader  # type: ignore[attr-defined]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        for name, weight in weights:
            expert, kind, _ = name.partition("experts.")[2].split(".")
            shard = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[kind]
            parameter = self.w2 if shard == "w2" else self.w13
            parameter.weight_loader(parameter, weight, "w.weight", shard, int(expert))  # type: ignore[attr-defined]


def load(weights: Weights) -> tuple[Experts, Layouts, Sums]:
    """Return the layer after a load, where its weights are, and the sums over them."""
    layer = Experts()
    layouts = Layouts(layer)
    layer.load_weights(layouts.follow(weights))
    summation = Summation()
    for parameter, layout in layouts.by_tensor().values():
        summation.add("layers.0.mlp.experts.w", parameter, layout)
    return layer, layouts, summation.read()


@pytest.mark.parametrize("limit", [1, EXPERT_BYTES, 2 * EXPERT_BYTES + 9, 3 * EXPERT_BYTES, 10**6])
def test_buckets_cut_stacks_between_experts(limit: int) -> None:
    expected = list(iterate_experts(build_stacks()))
    actual = list(iterate_experts(cut(limit)))
    assert len(expected) == 3 * EXPERTS
    assert [name for name, _ in actual] == [name for name, _ in expected]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(actual, expected, strict=True))


def test_a_stack_has_the_sums_of_its_experts() -> None:
    expected = sum_weights(iterate_experts(build_stacks()))
    assert len(expected.weights) == 3 * EXPERTS
    assert sum_weights(build_stacks()) == sum_weights(cut(2 * EXPERT_BYTES)) == expected


@pytest.mark.parametrize("limit", [2 * EXPERT_BYTES, 10**6])
def test_vllm_loads_stacks_as_it_loads_experts(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    monkeypatch.setattr(RoutedExperts, "weight_loader", RoutedExperts.weight_loader)  # restored after the test
    expected, places, sums = load(list(iterate_experts(build_stacks())))
    accept_stacks()
    actual, found, held = load(cut(limit))
    assert torch.equal(actual.w13, expected.w13)
    assert torch.equal(actual.w2, expected.w2)
    assert [found.find("", name) for name in ("w13", "w2")] == [places.find("", name) for name in ("w13", "w2")]
    assert held == sums
    assert [len(found.find("", name).blocks) for name in ("w13", "w2")] == [1, 1]


def test_the_sums_of_the_ranks_add_up() -> None:
    ranks = []
    for rank in range(2):
        summation = Summation()
        assert len(list(summation.follow(build_stacks(), share=rank, shares=2))) == 3
        ranks.append(summation.read())
    assert all(each.weights for each in ranks)
    assert add_up_sums(ranks) == sum_weights(build_stacks())


def test_exchanged_experts_of_a_stack_are_found() -> None:
    stacks = build_stacks()
    exchanged = [(name, tensor[[1, 0, *range(2, EXPERTS)]]) for name, tensor in stacks]
    moved = find_moved_weights(sum_weights(stacks), sum_weights(exchanged))
    assert len(moved) == 6
    assert "layers.0.mlp.experts.1.down_proj.weight" in moved


def test_the_host_reads_the_sums_of_all_weights_twice() -> None:
    """Once for the parts of the model, and once for the weights."""
    reads = Reads()
    with reads:
        sum_weights(iterate_experts(build_stacks()))
    assert reads.count == 2


class Reads(TorchFunctionMode):
    """Counts the values that the host reads."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in READS
        return func(*args, **(kwargs or {}))
